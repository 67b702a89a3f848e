"""Entries as bytes: what earlier versions wrote is read."""

from __future__ import annotations

from zlib import adler32

from app.core.events.block import pack_block, unpack_block
from app.core.events.event import Entry
from app.core.events.record import pack_entry, unpack_entry

HEAD = 10 + 7
"""Bytes in front of the body of a small block: its own head, and that of the stream."""
CUT = b"\xc3"
"""Half of a character: 0.2.0 cut names of more than 255 bytes wherever the 255th was."""


def test_names_that_0_2_0_cut_within_a_character_are_read_without_it() -> None:
    entries = [Entry("a", b"1", "SN1"), Entry("a", b"2", "SN2", "k", "7~"), Entry("a", b"3", "SN3")]
    packed = pack_block(entries)
    data = packed.replace(b"7~", b"7" + CUT)
    data = data[:-4] + adler32(data[HEAD:-4]).to_bytes(4)
    assert [event.entry for event in unpack_block(data, 3, 0, bool)] == [
        entries[0],
        entries[1]._replace(id="7"),
        entries[2],
    ]
    assert unpack_entry(pack_entry(entries[1]).replace(b"7~", b"7" + CUT)) == entries[1]._replace(id="7")
