"""Webhooks without I/O: who hears of what, how it is signed, when it is tried again, where nobody may connect."""
