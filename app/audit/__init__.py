"""The audit of a node: facts become lines, lines reach the database, and are read and verified again."""
