"""The ordinary routes of version 1, one file a subject."""
