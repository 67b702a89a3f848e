"""Every block of the pages is run by a test, or says why not."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.pages import ROOT, Block, blocks_of, pages

RUN_BY: Final = {
    "README.md": "tests/client/test_docs.py",
    "client/README.md": "tests/client/test_docs.py",
    "docs/access.md": "tests/cluster/test_access_guide.py",
    "docs/api.md": "tests/cluster/test_api_guide.py",
    "docs/client.md": "tests/client/test_docs.py",
    "docs/events.md": "tests/cluster/test_events_guide.py",
    "docs/fleets.md": "tests/cluster/test_events_guide.py",
    "docs/held.md": "tests/cluster/test_events_guide.py",
    "docs/operations/backup.md": "tests/cluster/test_backup.py",
    "docs/operations/small-box.md": "tests/cluster/test_small_box.py",
    "docs/profiles/tutorial.md": "tests/cluster/test_profile_tutorial.py",
    "docs/queues.md": "tests/cluster/test_events_guide.py",
    "docs/schedules.md": "tests/cluster/test_events_guide.py",
    "docs/streams.md": "tests/cluster/test_events_guide.py",
    "docs/tutorial.md": "tests/cluster/test_tutorial.py",
    "docs/interlocks.md": "tests/cluster/test_events_guide.py",
    "docs/two-persons.md": "tests/cluster/test_events_guide.py",
    "docs/webhooks.md": "tests/cluster/test_events_guide.py",
}
"""The test that runs the blocks of a page in a shell or in Python."""
BLOCKS: Final = [one for page in pages() for one in blocks_of(page.relative_to(ROOT).as_posix())]


def name_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", BLOCKS, ids=name_of)
def test_a_block_is_run_or_says_why_not(block: Block) -> None:
    if block.reason is not None:
        assert len(block.reason) > len("too long"), "a reason is a sentence"
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)
    else:
        assert block.page in RUN_BY, "name the test that runs it, or write <!-- not run: why --> in the line above"


@pytest.mark.parametrize("page", sorted(RUN_BY))
def test_a_page_that_is_run_has_blocks_and_its_test_names_it(page: str) -> None:
    assert [one for one in BLOCKS if one.page == page and one.reason is None]
    assert Path(page).name in (ROOT / RUN_BY[page]).read_text("utf-8")
