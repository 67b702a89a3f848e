"""The access directory in SQL."""
