"""The state store: its ports, an engine a folder, and the one place that chooses the engine."""
