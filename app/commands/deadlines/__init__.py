"""Ends commands whose deadline is near or has passed, and those that a dead node left."""
