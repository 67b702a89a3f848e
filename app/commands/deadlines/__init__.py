"""Ends commands whose deadline has passed, and those that a dead node left."""
