"""Connections to databases, and the version of their tables."""
