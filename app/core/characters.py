"""Names of characters in error messages, so that a hostile value cannot break a log line or a terminal."""

from __future__ import annotations


def named(character: str) -> str:
    """`'+'` for visible ASCII, `U+0000` for everything else: never the raw character."""
    if "!" <= character <= "~":
        return f"'{character}'"
    return f"U+{ord(character):04X}"
