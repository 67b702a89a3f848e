"""The state store: the port, its implementations in memory and in Redis, and the key schema."""
