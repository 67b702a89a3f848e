"""The analysis of the latency log on Spark: tables, summary, learned deadlines, stream and report."""
