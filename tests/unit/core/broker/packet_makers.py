"""Packets that the standards allow, made at random."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from app.core.broker import packets
from app.core.broker.codes import REASON_CODES, RETURN_CODES, PacketType, Property, ProtocolVersion, ReasonCode
from app.core.broker.packets import FilterOptions, Packet
from app.core.broker.properties import NO_PROPERTIES, Properties

P, T, V3, V5 = Property, PacketType, ProtocolVersion.V3_1_1, ProtocolVersion.V5

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
levels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#/"), max_size=4)
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
_levels_of_filters = st.lists(st.one_of(levels, st.just("+")), min_size=1, max_size=4).map("/".join)
plain_filters = st.one_of(
    _levels_of_filters.filter(lambda one: one and not one.startswith("$share/")),
    st.just("#"),
    _levels_of_filters.map(lambda one: f"{one}/#").filter(lambda one: not one.startswith("$share/")),
)
filters = st.one_of(plain_filters, st.builds("$share/{}/{}".format, levels.filter(bool), plain_filters))
blobs = st.binary(max_size=30)
ids = st.integers(1, 65_535)
u16, u32, flags = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 1)

_VALUES = {
    P.PAYLOAD_FORMAT_INDICATOR: flags,
    P.MESSAGE_EXPIRY_INTERVAL: u32,
    P.CONTENT_TYPE: texts,
    P.RESPONSE_TOPIC: topics,
    P.CORRELATION_DATA: blobs,
    P.SUBSCRIPTION_IDENTIFIER: st.integers(1, 268_435_455),
    P.SESSION_EXPIRY_INTERVAL: u32,
    P.ASSIGNED_CLIENT_IDENTIFIER: texts,
    P.SERVER_KEEP_ALIVE: u16,
    P.AUTHENTICATION_METHOD: texts,
    P.REQUEST_PROBLEM_INFORMATION: flags,
    P.WILL_DELAY_INTERVAL: u32,
    P.REQUEST_RESPONSE_INFORMATION: flags,
    P.RESPONSE_INFORMATION: texts,
    P.SERVER_REFERENCE: texts,
    P.REASON_STRING: texts,
    P.RECEIVE_MAXIMUM: st.integers(1, 65_535),
    P.TOPIC_ALIAS_MAXIMUM: u16,
    P.TOPIC_ALIAS: st.integers(1, 65_535),
    P.MAXIMUM_QOS: flags,
    P.RETAIN_AVAILABLE: flags,
    P.MAXIMUM_PACKET_SIZE: st.integers(1, 2**32 - 1),
    P.WILDCARD_SUBSCRIPTION_AVAILABLE: flags,
    P.SUBSCRIPTION_IDENTIFIER_AVAILABLE: flags,
    P.SHARED_SUBSCRIPTION_AVAILABLE: flags,
}
_users = st.lists(st.tuples(texts, texts), max_size=2).map(tuple)


def properties(version: ProtocolVersion, *keys: Property, several: bool = False) -> st.SearchStrategy[Properties]:
    """Some of these properties, in any order, with user properties; `several` subscription identifiers."""
    if version is V3:
        return st.just(NO_PROPERTIES)
    values = st.fixed_dictionaries({}, optional={key: _VALUES[key] for key in keys})
    identifiers = st.lists(st.integers(1, 268_435_455), max_size=2 if several else 0).map(tuple)
    return st.builds(Properties, values, _users, identifiers)


_MESSAGE = (
    *(P.PAYLOAD_FORMAT_INDICATOR, P.MESSAGE_EXPIRY_INTERVAL, P.CONTENT_TYPE, P.RESPONSE_TOPIC, P.CORRELATION_DATA),
)


@cache
def packets_of(version: ProtocolVersion) -> st.SearchStrategy[Packet]:
    """Packets of all types."""
    wills = st.builds(
        packets.WillMessage,
        topics,
        blobs,
        st.integers(0, 2),
        st.booleans(),
        properties(version, *_MESSAGE, P.WILL_DELAY_INTERVAL),
    )
    connects = st.builds(
        packets.Connect,
        st.just(version),
        texts,
        st.booleans(),
        u16,
        st.none() | texts,
        st.none() | blobs,
        st.none() | wills,
        properties(
            version,
            *(P.SESSION_EXPIRY_INTERVAL, P.RECEIVE_MAXIMUM, P.MAXIMUM_PACKET_SIZE, P.TOPIC_ALIAS_MAXIMUM),
            *(P.REQUEST_RESPONSE_INFORMATION, P.REQUEST_PROBLEM_INFORMATION, P.AUTHENTICATION_METHOD),
        ),
    )
    if version is V3:
        connects = connects.map(lambda one: replace(one, password=None) if one.user_name is None else one)
    refusals = sorted(REASON_CODES[T.CONNACK]) if version is V5 else list(RETURN_CODES.values())
    connacks = st.builds(
        packets.Connack,
        st.sampled_from(refusals),
        st.booleans(),
        properties(
            version,
            *(P.SESSION_EXPIRY_INTERVAL, P.RECEIVE_MAXIMUM, P.MAXIMUM_QOS, P.RETAIN_AVAILABLE, P.MAXIMUM_PACKET_SIZE),
            *(P.ASSIGNED_CLIENT_IDENTIFIER, P.TOPIC_ALIAS_MAXIMUM, P.REASON_STRING, P.SERVER_KEEP_ALIVE),
            *(P.WILDCARD_SUBSCRIPTION_AVAILABLE, P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, P.SHARED_SUBSCRIPTION_AVAILABLE),
            *(P.RESPONSE_INFORMATION, P.SERVER_REFERENCE, P.AUTHENTICATION_METHOD),
        ),
    )
    of_message = properties(version, *_MESSAGE, P.TOPIC_ALIAS, several=True)
    at_most_once = st.builds(packets.Publish, topics, blobs, st.just(0), st.booleans(), properties=of_message)
    acknowledged = st.builds(
        packets.Publish, topics, blobs, st.integers(1, 2), st.booleans(), st.booleans(), ids, of_message
    )
    acks = st.sampled_from([T.PUBACK, T.PUBREC, T.PUBREL, T.PUBCOMP]).flatmap(
        lambda kind: st.builds(
            packets.PublishAck,
            st.just(kind),
            ids,
            _reasons(kind, version),
            properties(version, P.REASON_STRING),
        )
    )
    subscribes = st.builds(
        packets.Subscribe,
        ids,
        st.lists(_options(version), min_size=1, max_size=3).map(tuple),
        properties(version, P.SUBSCRIPTION_IDENTIFIER),
    )
    granted = _reasons(T.SUBACK, V5) if version is V5 else st.sampled_from([ReasonCode(n) for n in (0, 1, 2, 0x80)])
    subacks = st.builds(
        packets.Suback,
        ids,
        st.lists(granted, min_size=1, max_size=3).map(tuple),
        properties(version, P.REASON_STRING),
    )
    unsubscribes = st.builds(
        packets.Unsubscribe, ids, st.lists(filters, min_size=1, max_size=3).map(tuple), properties(version)
    )
    least = int(version is V5)
    unsubacks = st.builds(
        packets.Unsuback,
        ids,
        st.lists(_reasons(T.UNSUBACK, V5), min_size=least, max_size=3 * least).map(tuple),
        properties(version, P.REASON_STRING),
    )
    disconnects = st.builds(
        packets.Disconnect,
        _reasons(T.DISCONNECT, version),
        properties(version, P.SESSION_EXPIRY_INTERVAL, P.REASON_STRING, P.SERVER_REFERENCE),
    )
    pings = st.sampled_from([packets.Pingreq(), packets.Pingresp()])
    auths = st.builds(
        packets.Auth,
        _reasons(T.AUTH, V5),
        st.builds(
            lambda method, data: Properties({P.AUTHENTICATION_METHOD: method, P.AUTHENTICATION_DATA: data}),
            texts,
            blobs,
        ),
    )
    both = (connects, connacks, at_most_once, acknowledged, acks, subscribes, subacks, unsubscribes, unsubacks)
    return st.one_of(*both, disconnects, pings, *([auths] if version is V5 else []))


def _reasons(kind: PacketType, version: ProtocolVersion) -> st.SearchStrategy[ReasonCode]:
    return st.sampled_from(sorted(REASON_CODES[kind])) if version is V5 else st.just(ReasonCode.SUCCESS)


def _options(version: ProtocolVersion) -> st.SearchStrategy[FilterOptions]:
    if version is V3:
        return st.builds(FilterOptions, filters, st.integers(0, 2))
    made = st.builds(FilterOptions, filters, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2))
    return made.map(lambda one: replace(one, no_local=False) if one.topic_filter.startswith("$share/") else one)
