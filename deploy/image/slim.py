"""Makes a folder of Python packages as small as a node can use it: `slim.py SITE_PACKAGES`.

Removed is what a node never loads: sources and stubs of extensions, tests, the parts of Arrow that the latency log is
not written with, databases that no access directory is in, the lexers of languages, schemas of services that nobody
calls, the symbol tables of libraries, which only debuggers read, and the lists of files by which pip removes packages.
"""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path

SOURCES = {".c", ".cc", ".cpp", ".h", ".hpp", ".pxd", ".pxi", ".pyi", ".pyx"}
# `pyarrow.lib` is linked with Acero, Compute, Dataset and Substrait, so they stay. These have modules of their own.
ARROW = (
    *("include", "src", "_flight.*", "flight.py", "libarrow_flight.so*", "libarrow_python_flight.so*"),
    *("_orc.*", "orc.py", "_dataset_orc.*", "_substrait.*", "substrait.py", "_pyarrow_cpp_tests.*"),
    *("_parquet_encryption.*", "_dataset_parquet_encryption.*", "libarrow_python_parquet_encryption.so*"),
    # A wheel has no links: it carries this library under three names, and what is linked with it wants the middle one.
    *("libarrow_python.so", "libarrow_python.so.*.*.*"),
)
# What they are tested with, and databases that no access directory is in.
SQL = (
    *("sqlalchemy/testing", "alembic/testing", "alembic/templates"),
    *("sqlalchemy/dialects/mssql", "sqlalchemy/dialects/mysql", "sqlalchemy/dialects/oracle"),
)
# What tells people's terminals of code in colours; the rest of Pygments wants these of its languages.
LEXERS = {"__init__.py", "_mapping.py", "python.py", "special.py"}
# Schemas of Google's services, which come along with the one of errors.
GOOGLE = ("api", "cloud", "gapic", "logging", "longrunning", "type")
ELF64_LITTLE = b"\x7fELF\x02\x01"


def remove(path: Path) -> None:
    """Delete a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def strip(library: Path) -> None:
    """Cut off what stands behind the last segment that is loaded: symbols, debug information, section headers."""
    data = bytearray(library.read_bytes())
    if not data.startswith(ELF64_LITTLE):
        return
    (table,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    end = table + size * count
    for number in range(count):
        *_, offset, _, _, in_file = struct.unpack_from("<IIQQQQ", data, table + size * number)
        end = max(end, offset + in_file)
    struct.pack_into("<Q", data, 0x28, 0)
    struct.pack_into("<HHH", data, 0x3A, 0, 0, 0)
    library.write_bytes(data[:end])


def main(site_packages: Path) -> None:
    """Do all of it."""
    for pattern in ARROW:
        for path in (site_packages / "pyarrow").glob(pattern):
            remove(path)
    for name in (*SQL, *(f"google/{one}" for one in GOOGLE)):
        if (site_packages / name).exists():
            remove(site_packages / name)
    for path in (site_packages / "pygments" / "lexers").glob("*.py"):
        if path.name not in LEXERS:
            remove(path)
    for path in sorted(site_packages.rglob("*"), reverse=True):
        tests = path.name == "tests" and path.is_dir() and path.parent != site_packages
        listing = path.name == "RECORD" and path.parent.suffix == ".dist-info"
        if tests or listing or (path.suffix in SOURCES and path.is_file()):
            remove(path)
        elif ".so" in path.suffixes and path.is_file():
            strip(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
