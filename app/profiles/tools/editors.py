"""The JSON Schema of profile files, from the tables that read them, for editors that complete and check TOML."""

from __future__ import annotations

from typing import Any

from app.profiles.language.whole import ManyRequestsTable


def schema_of_files() -> dict[str, Any]:
    """Draft 2020-12. `request` is one table or several, as in the files."""
    schema = ManyRequestsTable.model_json_schema()
    request = schema["properties"]["request"]
    schema["properties"]["request"] = {"anyOf": [request["items"], request]}
    schema["title"] = "A device profile of Homing"
    return schema
