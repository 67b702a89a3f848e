"""The audit in SQL."""
