"""Decisions without I/O: standard library only, no asyncio, no clock reads, no logging."""
