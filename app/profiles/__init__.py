"""The shipped device profiles, as TOML data, and their loader."""
