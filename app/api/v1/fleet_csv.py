"""The targets of a fleet run as CSV, for people with a spreadsheet."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from io import StringIO
from typing import Any, Final

import orjson

from app.api.v1.fleet_models import target_json
from app.fleets.administration import TargetRow

MEDIA_TYPE: Final = b"text/csv"
COLUMNS: Final = ("device_id", "profile", "wave", "state", "command_id", "ended_at", "code", "message", "result")
_SIGNS: Final = r"=+\-@\uff1d\uff0b\uff0d\uff20"
"""The signs that begin a formula; the last four are the wide forms that Japanese and Chinese spreadsheets take, too."""
_BEGINS_FORMULA: Final = re.compile(rf"^(?=[{_SIGNS}\t\r\n])|(?<=[;\t\r\n])(?=[{_SIGNS}])")
"""The places before a formula: where a text begins, or where a spreadsheet divides it that goes by other signs."""


def targets_csv(rows: Iterable[TargetRow]) -> bytes:
    """A line for each target below the names of the columns, as in RFC 4180."""
    text = StringIO()
    table = csv.writer(text)
    table.writerow(COLUMNS)
    for row in rows:
        target = target_json(row)
        table.writerow([*(_cell(target[name]) for name in COLUMNS[:-1]), _cell_of_json(row.answer or "")])
    return text.getvalue().encode()


def _cell_of_json(text: str) -> str:
    """A JSON text as it is, or as `_cell` has it. One that begins with a sign is a number."""
    return text if text.startswith("-") else _cell(text)


def _cell(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A value as text. An apostrophe is put before what a spreadsheet would take for a formula."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return orjson.dumps(value).decode()
    return _BEGINS_FORMULA.sub("'", value if isinstance(value, str) else orjson.dumps(value).decode())
