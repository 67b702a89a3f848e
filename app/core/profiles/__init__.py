"""Device profiles: how a family of devices speaks, and how its messages are read."""
