"""Verbs of the `homing` command that this distribution adds."""
