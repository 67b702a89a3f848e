"""Characters: how error messages name them, so that a hostile value breaks no log line or terminal, and digits."""

from __future__ import annotations

from typing import Final

CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""The digits of Crockford's Base32, of which people take none for another; ULIDs have them."""
_MOST_SHOWN: Final = 64


def shown(text: str) -> str:
    """Return the beginning of a text that somebody has sent, in ASCII."""
    return text[:_MOST_SHOWN].encode("ascii", "backslashreplace").decode()


def digits(number: int, alphabet: str, length: int) -> str:
    """Write a number with these digits, with zeros in front; the lowest ones where it is too large."""
    written = []
    for _ in range(length):
        number, digit = divmod(number, len(alphabet))
        written.append(alphabet[digit])
    return "".join(reversed(written))


def named(character: str) -> str:
    """`'+'` for visible ASCII, `U+0000` for everything else: never the raw character."""
    if "!" <= character <= "~":
        return f"'{character}'"
    return f"U+{ord(character):04X}"
