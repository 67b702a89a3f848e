"""Queues over the log: what is decided about them, without I/O."""
