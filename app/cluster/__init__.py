"""The cluster border: who is alive, and wake-ups between nodes."""
