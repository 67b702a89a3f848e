"""Fails the build of the image when something was left out that a node needs."""

import ssl

import pyarrow as pa
from pyarrow import parquet
from pyarrow.fs import AzureFileSystem, GcsFileSystem, S3FileSystem

import app.main  # noqa: F401 - with all that it imports

table = pa.table(
    {"device": pa.array(["a", "b", "a"]).dictionary_encode(), "at": pa.array([1, 2, 3], pa.timestamp("us"))}
)
for compression in ("snappy", "zstd"):
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression=compression)
    if not parquet.read_table(pa.BufferReader(sink.getvalue())).equals(table):
        raise SystemExit(f"what pyarrow wrote with {compression} is not what it reads")
if not all((AzureFileSystem, GcsFileSystem, S3FileSystem)):
    raise SystemExit("Arrow cannot reach object stores")
if not ssl.create_default_context().cert_store_stats()["x509_ca"]:
    raise SystemExit("TLS trusts nobody: ca-certificates are missing")
