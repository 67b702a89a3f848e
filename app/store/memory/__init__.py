"""The engine of one node alone: everything in the memory of this process."""
