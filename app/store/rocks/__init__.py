"""RocksDB: what one process keeps by itself."""
