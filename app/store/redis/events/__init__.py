"""The event log in Redis."""
