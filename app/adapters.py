"""The adapters that the settings name: engines of the stores, the broker's client, real clocks and ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from app.cluster.engine import open_cluster
from app.core.clock import Clock
from app.core.redis_address import RedisTerms
from app.kernel import Adapters
from app.mqtt.from_settings import intake_options, mqtt_options
from app.mqtt.paho import PahoMqttClient
from app.mqtt.paho_drain import PahoSessionDrain
from app.mqtt.paho_roll_call import PahoRollCall
from app.runtime.histograms import StoreMeasures
from app.runtime.system import SystemClock, new_charter, new_secret, new_ulid, new_wake_key
from app.runtime.telemetry import Counters
from app.settings import Settings
from app.store.directory import AccessDirectory
from app.store.engine import Engine, EventEngine, open_directory, open_engine, open_events
from app.store.folders import Folders
from app.store.session_engine import open_sessions
from app.store.sessions import SessionStore


def open_adapters(settings: Settings, counters: Counters, on_failure: Callable[[BaseException], None]) -> Adapters:
    """The adapters that the settings name."""
    terms = settings.redis.terms()
    clock, store_measures, wake_key = SystemClock(), StoreMeasures(), new_wake_key()
    folders = Folders(settings.store.tables_bytes)
    engine = open_engine(
        settings.store.url,
        clock=clock,
        counters=counters,
        wake_key=wake_key,
        new_secret=new_secret,
        budget=settings.store.budget,
        measures=store_measures,
        folders=folders,
        records_bytes=settings.store.records_bytes,
        terms=terms,
    )
    return Adapters(
        clock=clock,
        new_ulid=new_ulid,
        counters=counters,
        store=engine.store,
        identity=engine.identity,
        open_cluster=lambda handlers: open_cluster(
            settings.store.url,
            lease=settings.cluster.lease,
            session_life=settings.mqtt.session_expiry,
            clock=clock,
            counters=counters,
            new_charter=new_charter,
            handlers=handlers,
            on_failure=on_failure,
            terms=terms,
        ),
        open_mqtt=lambda client_id, still_ours: PahoMqttClient(
            mqtt_options(settings, client_id), counters, still_ours=still_ours
        ),
        open_drain=lambda client_id: PahoSessionDrain(mqtt_options(settings, client_id), counters),
        open_roll_call=lambda client_id: PahoRollCall(mqtt_options(settings, client_id), counters),
        store_measures=store_measures,
        wake_key=wake_key,
        directory=_directory(settings),
        sessions=_sessions(settings, engine, clock, counters, terms),
        events=_event_engine(settings, clock, counters, folders, terms),
        open_intake=lambda client_id, still_ours: PahoMqttClient(
            intake_options(settings, client_id), counters, still_ours=still_ours
        ),
        open_listener=lambda client_id: PahoMqttClient(
            replace(mqtt_options(settings, client_id), session_expiry=timedelta()), counters
        ),
    )


def _directory(settings: Settings) -> AccessDirectory | None:
    if not settings.access.url:
        return None
    return open_directory(settings.access.url, new_cluster_id=new_secret, budget=settings.access.budget)


def _sessions(
    settings: Settings, engine: Engine, clock: Clock, counters: Counters, terms: RedisTerms
) -> SessionStore | None:
    if not settings.broker.listens:
        return None
    return open_sessions(
        engine,
        settings.store.url,
        name=settings.mqtt.share_group,
        node_id=settings.node.id,
        clock=clock,
        counters=counters,
        new_secret=new_secret,
        lease=settings.cluster.lease,
        budget=settings.store.budget,
        terms=terms,
    )


def _event_engine(
    settings: Settings, clock: Clock, counters: Counters, folders: Folders, terms: RedisTerms
) -> EventEngine | None:
    if not settings.events.url:
        return None
    return open_events(
        settings.events.url,
        clock=clock,
        counters=counters,
        new_secret=new_secret,
        lease=settings.cluster.lease,
        name=settings.mqtt.share_group,
        node_id=settings.node.id or "",
        cold=settings.events.cold,
        folders=folders,
        terms=terms,
    )
