"""Tools that help to write a profile: hints, examples, trials, traces."""
