"""Packets that a client could send, in an order that a client could send them in, and what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from homing_rig.fuzz.drafts import PacketDraft, PacketField, PropertiesField, RawField, StringField, variable

V3, V5 = 4, 5
CLIENTS: Final = (*(b"fuzz-%d" % number for number in range(12)), b"")
TOPICS: Final = (b"a", b"a/b", b"a/b/c", b"/", b"b", b"b/", "ü/é".encode(), b"$x/y", b"a/ /b")
FILTERS: Final = (*TOPICS, b"#", b"+", b"a/#", b"+/b", b"a/+/c", b"$share/g/a/#", b"$share/h/+", b"$x/#")
EVIL: Final = (
    *(b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"a\xe2\x82", b"\xef\xbb\xbf"),
    *(b"a/#/b", b"a+", b"#a", b"+", b"#", b"$share/", b"$share//a", b"$share/g", b"$SYS/x", b"/" * 40, b"x" * 1100),
)
ONE_BYTE: Final = (0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A)
TWO_BYTES: Final = (0x13, 0x21, 0x22, 0x23)
FOUR_BYTES: Final = (0x02, 0x11, 0x18, 0x27)
TEXTS: Final = (0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F)
ALL: Final = (*ONE_BYTE, *TWO_BYTES, *FOUR_BYTES, *TEXTS, 0x0B, 0x26)
OF_MESSAGE: Final = (0x01, 0x02, 0x03, 0x08, 0x09, 0x26)
BROKEN: Final = (0.02, 0.1, 0.4)
"""Shares of the packets of a connection that are mutated: with many, it does not last long."""
NUMBERS: Final = (0, 1, 2, 3, 10, 255, 256, 65_535, 65_536, 2**31, 2**32 - 1)


class PacketMaker:
    """Makes packets from a source of chance: the same source makes the same ones."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._makers: Final[tuple[Callable[[int], PacketDraft], ...]] = (
            *[self._publish] * 24,
            *[self._subscribe] * 10,
            *[self._acknowledge] * 16,
            *[self._unsubscribe] * 3,
            *(self._ping, self._disconnect, self._auth, self._connect, self._anything),
        )

    def conversation(self) -> tuple[int, Iterator[bytes]]:
        """Return a version, and what a client of it says: mostly CONNECT first, mostly whole packets."""
        version = self._random.choice((V3, V5))
        return version, self._said(version)

    def _said(self, version: int) -> Iterator[bytes]:
        random = self._random
        if random.random() < 0.97:  # noqa: PLR2004
            yield self._made(self._connect(version), 0.08)
        broken = random.choice(BROKEN)
        for _ in range(random.randrange(1, 60)):
            yield self._made(random.choice(self._makers)(version), broken)

    def _made(self, draft: PacketDraft, broken: float) -> bytes:
        random = self._random
        if random.random() >= broken:
            return draft.render()
        for _ in range(random.randrange(1, 4)):
            self._break(draft)
        data = bytearray(draft.render())
        if random.random() < 0.3:  # noqa: PLR2004
            self._scratch(data)
        return bytes(data)

    def _break(self, draft: PacketDraft) -> None:
        random, fields = self._random, draft.fields
        what = random.randrange(9)
        if what == 0:
            draft.first ^= 1 << random.randrange(8)
        elif what == 1:
            draft.off = random.choice((-2, -1, 1, 2, 100, 2**14, 2**21, 2**28, 2**35))
        elif not fields:
            fields.append(RawField(random.randbytes(random.randrange(5))))
        elif what == 2:  # noqa: PLR2004
            del fields[random.randrange(len(fields))]
        elif what == 3:  # noqa: PLR2004
            fields.insert(random.randrange(len(fields) + 1), random.choice(fields))
        elif what == 4:  # noqa: PLR2004
            random.shuffle(fields)
        else:
            self._break_field(random.choice(fields))

    def _break_field(self, one: PacketField) -> None:
        random = self._random
        if isinstance(one, RawField):
            one.data = random.choice((b"", b"\0" * len(one.data), random.randbytes(len(one.data)), one.data + b"\0"))
        elif random.random() < 0.3:  # noqa: PLR2004
            one.off = random.choice((-2, -1, 1, 2, 200, 2**14, 2**21, 2**28))
        elif isinstance(one, StringField):
            one.data = random.choice(EVIL)
        elif one.pairs and random.random() < 0.5:  # noqa: PLR2004
            one.pairs.append(random.choice(one.pairs))
        else:
            one.pairs.append(self._property(random.choice((*ALL, random.randrange(256)))))

    def _scratch(self, data: bytearray) -> None:
        random = self._random
        for _ in range(random.randrange(1, 4)):
            at = random.randrange(len(data) + 1)
            if random.random() < 0.5 and at < len(data):  # noqa: PLR2004
                data[at] ^= 1 << random.randrange(8)
            elif random.random() < 0.5:  # noqa: PLR2004
                del data[at : at + random.randrange(4)]
            else:
                data[at:at] = random.randbytes(random.randrange(4))

    def _property(self, key: int) -> bytes:
        random, begin = self._random, bytes((key,))
        if key in ONE_BYTE:
            return begin + bytes((random.choice((0, 1, 1, 2)),))
        if key in TWO_BYTES:
            return begin + (random.choice(NUMBERS) % 2**16).to_bytes(2)
        if key in FOUR_BYTES:
            return begin + (random.choice(NUMBERS) % 2**32).to_bytes(4)
        if key == 0x0B:  # noqa: PLR2004
            return begin + variable(random.choice((1, 2, 127, 128, 2**28 - 1)))
        text = random.choice(TOPICS if random.random() < 0.9 else EVIL)  # noqa: PLR2004
        return begin + StringField(text).render() * (2 if key == 0x26 else 1)  # noqa: PLR2004

    def _properties(self, version: int, *keys: int) -> list[PacketField]:
        if version == V3:
            return []
        chosen = self._random.sample(keys, self._random.randrange(len(keys) + 1)) if keys else []
        return [PropertiesField([self._property(key) for key in chosen])]

    def _id(self) -> RawField:
        return RawField(self._random.choice((1, 1, 2, 3, 4, 5, 100, 65_535)).to_bytes(2))

    def _connect(self, version: int) -> PacketDraft:
        random = self._random
        flags, end = random.choice((0, 2)), list[PacketField]()
        if random.random() < 0.4:  # noqa: PLR2004
            flags |= 4 | random.choice((0, 8, 16)) | random.choice((0, 32))
            end += self._properties(version, *OF_MESSAGE, 0x18)
            end += [StringField(random.choice(TOPICS)), StringField(b"gone")]
        if random.random() < 0.2:  # noqa: PLR2004
            flags |= 0xC0
            end += [StringField(b"user"), StringField(b"\0\xff")]
        head = bytes((version, flags)) + random.choice((0, 1, 60, 65_535)).to_bytes(2)
        kept = self._properties(version, *random.sample((0x11, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27), 2))
        name = StringField(random.choice(CLIENTS))
        return PacketDraft(0x10, [StringField(b"MQTT"), RawField(head), *kept, name, *end])

    def _publish(self, version: int) -> PacketDraft:
        random = self._random
        qos, payload = random.choice((0, 1, 2)), random.choice((b"", b"x", b"x" * 300))
        first = 0x30 | qos << 1 | random.choice((0, 0, 1)) | (random.choice((0, 8)) if qos else 0)
        fields: list[PacketField] = [StringField(random.choice(TOPICS)), *([self._id()] if qos else [])]
        keys = (*OF_MESSAGE, 0x23) if random.random() < 0.2 else OF_MESSAGE  # noqa: PLR2004
        return PacketDraft(first, [*fields, *self._properties(version, *keys), RawField(payload)])

    def _subscribe(self, version: int) -> PacketDraft:
        random = self._random
        fields: list[PacketField] = [self._id(), *self._properties(version, 0x0B, 0x26)]
        for _ in range(random.randrange(1, 4)):
            topic_filter = random.choice(FILTERS)
            options = random.randrange(3)
            if version == V5 and not topic_filter.startswith(b"$share"):
                options |= random.choice((0, 4, 8, 0x10, 0x20))
            fields += [StringField(topic_filter), RawField(bytes((options,)))]
        return PacketDraft(0x82, fields)

    def _unsubscribe(self, version: int) -> PacketDraft:
        names = [StringField(self._random.choice(FILTERS)) for _ in range(self._random.randrange(1, 4))]
        return PacketDraft(0xA2, [self._id(), *self._properties(version, 0x26), *names])

    def _acknowledge(self, version: int) -> PacketDraft:
        fields: list[PacketField] = [self._id()]
        if version == V5 and self._random.random() < 0.5:  # noqa: PLR2004
            fields.append(RawField(bytes((self._random.choice((0, 0, 0x10, 0x80, 0x92)),))))
            fields += self._properties(version, 0x1F, 0x26)
        return PacketDraft(self._random.choice((0x40, 0x50, 0x62, 0x70)), fields)

    def _ping(self, _version: int) -> PacketDraft:
        return PacketDraft(0xC0, [])

    def _disconnect(self, version: int) -> PacketDraft:
        if version == V3 or self._random.random() < 0.5:  # noqa: PLR2004
            return PacketDraft(0xE0, [])
        reason = RawField(bytes((self._random.choice((0, 4, 0x80, 0x8E)),)))
        return PacketDraft(0xE0, [reason, *self._properties(version, 0x11, 0x1F, 0x26)])

    def _auth(self, version: int) -> PacketDraft:
        return PacketDraft(0xF0, [RawField(b"\x18"), *self._properties(version, 0x15, 0x16, 0x1F)])

    def _anything(self, _version: int) -> PacketDraft:
        return PacketDraft(self._random.randrange(256), [RawField(self._random.randbytes(self._random.randrange(20)))])
