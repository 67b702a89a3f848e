"""Commands: their states, what matches their responses, and what is said of how they went."""
