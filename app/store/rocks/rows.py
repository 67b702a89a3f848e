"""Rows of a table in the order of their keys."""

from __future__ import annotations

from collections.abc import Iterator

from rocksdict import Rdict

from app.core.errors import DamagedEventsError


def keys_from(table: Rdict, first: bytes) -> Iterator[bytes]:
    """Keys from this one on; DamagedEventsError."""
    return (key for key, _ in _rows(table, first, values=False))


def rows_from(table: Rdict, first: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values from this key on; DamagedEventsError."""
    return _rows(table, first, values=True)


def _rows(table: Rdict, first: bytes, *, values: bool) -> Iterator[tuple[bytes, bytes]]:
    # Not `items()`: that ends at a damaged block as if there were no more.
    cursor = table.iter()
    cursor.seek(first)
    while cursor.valid():
        yield cursor.key(), cursor.value() if values else b""
        cursor.next()
    try:
        cursor.status()
    except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
        raise DamagedEventsError(str(error)) from None
