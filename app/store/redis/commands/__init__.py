"""Commands in Redis."""
