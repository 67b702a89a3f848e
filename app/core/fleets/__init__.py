"""Fleet runs: one command for many devices, in waves, with rules that stop it."""
