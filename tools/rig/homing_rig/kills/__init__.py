"""The broker in a node is killed, and clients of it compare what they were promised with what they get."""
