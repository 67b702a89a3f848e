"""Fleet runs: one command for many devices, in waves, driven by one node at a time."""
