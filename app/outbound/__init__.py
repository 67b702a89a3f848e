"""HTTP requests to addresses that callers chose."""
