"""The charter that a node joins under: that of its store, unless the store is a copy of a living cluster's."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Protocol

import structlog

from app.cluster.directory import ClusterDirectory, NodeInfo
from app.cluster.membership import Membership
from app.core.cluster.charter import Charter
from app.core.cluster.notices import SessionNotice, Word, decode_notice, encode_notice, notice_topic
from app.core.errors import BrokerUnavailableError
from app.mqtt.base import RollCall
from app.runtime.telemetry import Counters

YOUNG: Final = timedelta(seconds=10)
"""Nobody has copied and restored a store within so short a time: nodes that start together ask nobody."""
PATIENCE: Final = timedelta(seconds=3)
"""The time that the first node of a cluster waits for answers of another one: busy nodes have needed a second."""


class _FounderCluster(Membership, ClusterDirectory, Protocol):
    """The part of the cluster that says who lives, and what they share."""


class Founder:
    """Asks over the broker when the store has a charter and knows of no living node; nobody, without `roll_call`.

    Two clusters with one charter are one share group to the broker: each gets a part of the other's responses.
    """

    def __init__(self, *, cluster: _FounderCluster, roll_call: RollCall | None, counters: Counters) -> None:
        self._cluster = cluster
        self._roll_call = roll_call
        self._counters = counters
        self._log = structlog.get_logger()

    async def charter(self, asker: NodeInfo) -> Charter:
        """The charter for this incarnation. StoreUnavailableError when the cluster's memory does not answer."""
        charter = await self._cluster.charter()
        if charter.age < YOUNG or await self._somebody_lives() or not await self._is_used(charter, asker):
            return charter
        if await self._somebody_lives():  # it was a node of our own that answered
            return charter
        self._counters["charter.copied"] += 1
        self._log.warning("charter_copied", reason="nodes that this store does not know use its charter")
        return await self._cluster.found_anew(charter)

    async def _somebody_lives(self) -> bool:
        await self._cluster.nodes()
        return bool(self._cluster.leased)

    async def _is_used(self, charter: Charter, asker: NodeInfo) -> bool:
        if self._roll_call is None:
            return False

        def is_answer(payload: bytes) -> bool:
            try:
                notice = decode_notice(payload, charter)
            except ValueError:
                return False
            return notice.word is Word.HERE and notice.asker == asker.incarnation

        question = encode_notice(SessionNotice(Word.WHO, asker.node_id, asker.incarnation), charter)
        try:
            return await self._roll_call.ask(notice_topic(charter), question, is_answer, PATIENCE)
        except BrokerUnavailableError as error:
            self._log.info("charter_not_asked_for", reason=str(error))
            return False
