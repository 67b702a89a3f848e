"""The latency log: what each finished callback leaves behind, written as Parquet."""
