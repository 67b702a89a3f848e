"""Who may do what: the model and the decision, without I/O."""
