"""Sends commands: registers, publishes, waits."""
