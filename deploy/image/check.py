"""Fails the build of the image when something was left out that a node needs."""

import asyncio
import ssl
import tempfile
from datetime import timedelta

import pyarrow as pa
from pyarrow import parquet
from pyarrow.fs import AzureFileSystem, GcsFileSystem, S3FileSystem

import app.main  # noqa: F401 - with all that it imports
from app.access.login.passwords import Passwords
from app.core.events.event import Entry, Event
from app.core.events.reading import Reading
from app.store.engine import open_directory
from app.store.parquet.files import FileWriter, open_file, read_slice, slices, within

table = pa.table(
    {"device": pa.array(["a", "b", "a"]).dictionary_encode(), "at": pa.array([1, 2, 3], pa.timestamp("us"))}
)
for compression in ("snappy", "zstd"):
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression=compression)
    if not parquet.read_table(pa.BufferReader(sink.getvalue())).equals(table):
        raise SystemExit(f"what pyarrow wrote with {compression} is not what it reads")
writer = FileWriter()
said = [Event(number, 0, Entry("a" if number % 2 else "b", b"%d" % number)) for number in range(1, 9)]
writer.add(said)
cold = open_file(pa.BufferReader(writer.finish()))
(groups,) = slices(cold.metadata, Reading("+"))
if within(read_slice(cold, groups, Reading("+")), 0, 0, 9, 9) != (said, False):
    raise SystemExit("the cold tier of events reads something else than it wrote")
if not all((AzureFileSystem, GcsFileSystem, S3FileSystem)):
    raise SystemExit("Arrow cannot reach object stores")
if not ssl.create_default_context().cert_store_stats()["x509_ca"]:
    raise SystemExit("TLS trusts nobody: ca-certificates are missing")


async def keep_a_directory(url: str) -> None:
    """Make the tables of an access directory, and read them."""
    directory = open_directory(url, new_cluster_id=str, budget=timedelta(minutes=1))
    await directory.migrate()
    await directory.start()
    await directory.close()


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(keep_a_directory(f"sqlite:///{folder}/access.db"))
open_directory("postgresql://homing@127.0.0.1/homing", new_cluster_id=str)  # loads the driver
asyncio.run(Passwords().hash("a password of nobody"))
