"""The language of profile files: its tables, and what may stand in them."""
