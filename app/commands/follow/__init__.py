"""Follows commands, one or all of them, as they happen."""
