"""The event plane: what devices say unasked is taken in, kept, and read again."""
