"""The event log as values and decisions: events, structures of topics, readings, cursors, transactions."""
