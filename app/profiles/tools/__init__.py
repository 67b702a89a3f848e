"""What helps to write a profile: hints, examples, trials, traces."""
