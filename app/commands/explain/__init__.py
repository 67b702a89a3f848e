"""Explains what became of a command."""
