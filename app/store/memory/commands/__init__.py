"""Commands in memory."""
