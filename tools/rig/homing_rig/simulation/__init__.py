"""Whole clusters in one thread on one virtual clock: one number, the seed, decides everything that happens."""
