"""Access without I/O: the model of rights, and the decision who may do what."""
