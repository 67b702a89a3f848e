"""Code blocks of the pages: which there are, and why some of them are not run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("docs", "deploy", "client")
LANGUAGES: Final = ("sh", "bash", "console", "python", "toml", "json")
_BLOCK: Final = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^>]+?) -->\n+)?(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One block of a page; `reason` says why nobody runs it."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None


def pages() -> list[Path]:
    """All pages but decisions, which tell of their day."""
    found = [*ROOT.glob("*.md"), *(one for folder in FOLDERS for one in (ROOT / folder).rglob("*.md"))]
    return sorted(one for one in found if "adr" not in one.parts)


def blocks_of(page: str) -> Iterator[Block]:
    """The blocks of a page in a language that can be run."""
    text = (ROOT / page).read_text("utf-8")
    for found in _BLOCK.finditer(text):
        if found["language"] in LANGUAGES:
            line = text.count("\n", 0, found.start("language")) + 1
            yield Block(page, line, found["language"], found["text"], found["reason"])


def to_run(page: str, *languages: str) -> list[str]:
    """The blocks of a page that a test has to run, in order."""
    return [one.text for one in blocks_of(page) if one.language in languages and one.reason is None]
