"""Queues over the event log: declared, fed, lent and settled."""
