"""Commands: sending them, and ending them at their deadline."""
