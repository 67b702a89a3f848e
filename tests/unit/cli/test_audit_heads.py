"""Heads of the audit in logs of nodes, whatever the nodes are called and the logs look like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli.audit import _heads
from app.core.audit.chain import ChainHead

HASH = "ab" * 32
FACTS = {"hash": HASH, "seq": 96, "writer": "writer-1/01M8KNF6B1D5PNHSHARCX2RV49"}


@pytest.mark.parametrize("node_id", ["node-a", "writer-1", "seq-7", "hash.1"])
@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_head_is_read_from_a_line_of_any_node(tmp_path: Path, node_id: str, kind: str) -> None:
    told = {"event": "audit_head", "node_id": node_id, **FACTS}
    text = " ".join(f"{name}={value}" for name, value in told.items())
    (tmp_path / "node.log").write_text(f"2026-11-29 [info] {text if kind == 'text' else json.dumps(told)}\n")
    expected = ChainHead(str(FACTS["writer"]), 96, bytes.fromhex(HASH))
    assert list(_heads(str(tmp_path / "node.log"))) == [expected]
