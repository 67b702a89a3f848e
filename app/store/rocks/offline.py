"""A store that no process uses: looked at, and made fit for a second life."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Final

from rocksdict import AccessType, Rdict, WriteBatch

from app.core.broker.rows import without_packet_ids
from app.core.errors import ConfigurationError, DamagedEventsError
from app.store.rocks.folder import close_table, options
from app.store.rocks.rows import rows_from
from app.store.rocks.sessions import FAMILY

if TYPE_CHECKING:
    from pathlib import Path

_DEFAULT: Final = "default"


def check_store(path: Path) -> int:
    """Open it without writing, and return how many tables it has; ConfigurationError says why it cannot be opened."""
    with tempfile.TemporaryDirectory() as logs:
        try:
            families = Rdict.list_cf(str(path), options())
            found = options()
            found.set_db_log_dir(logs)
            tables = {name: options() for name in families if name != _DEFAULT}
            close_table(Rdict(str(path), found, tables, access_type=AccessType.read_only()))
        except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
            raise ConfigurationError(f"{path} cannot be opened: {error}") from None
    return len(families)


def forget_packet_ids(path: Path) -> None:
    """Let clients and the broker agree again on what is on the way, after the store went back in time.

    Messages whose acknowledgement is not known are sent anew; ConfigurationError when the store cannot be opened.
    """
    try:
        families = Rdict.list_cf(str(path), options())
        if FAMILY not in families:
            return
        database = Rdict(str(path), options(), {name: options() for name in families if name != _DEFAULT})
    except Exception as error:  # noqa: BLE001 - rocksdict has no error of its own
        raise ConfigurationError(f"{path} cannot be opened: {error}") from None
    table = database.get_column_family(FAMILY)
    try:
        rows, handle = WriteBatch(raw_mode=True), database.get_column_family_handle(FAMILY)
        for key, row in without_packet_ids(rows_from(table, b"")):
            if row is None:
                rows.delete(key, handle)
            else:
                rows.put(key, row, handle)
        database.write(rows)
        database.flush_wal(True)
    except DamagedEventsError as error:
        raise ConfigurationError(f"the sessions in {path} cannot be read: {error}; take another backup") from None
    finally:
        close_table(table)
        close_table(database)
