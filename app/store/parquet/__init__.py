"""The cold tier: events as Parquet files, in a folder or on an object store."""
