"""The audit: chains of lines, and the facts in them."""
