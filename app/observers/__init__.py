"""Observers of commands: metrics, the latency log, traces, and the log of what was dropped."""
