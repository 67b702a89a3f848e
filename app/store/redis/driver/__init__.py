"""Connections to Redis, and what is sent over them."""
