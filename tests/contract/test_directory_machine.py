"""Random histories of changes, in SQLite and in PostgreSQL at once, against a model made of dictionaries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from app.core.access.changes import Change, Entry, Put, Remove, Revoke, identity_of
from app.core.access.model import Binding, Credential, Device, Document, Kind, Principal, Role, Scheme, Tenant
from app.core.errors import EntryConflictError, EntryNotFoundError, VersionConflictError
from app.store.directory import AccessDirectory
from tests.contract.directory_places import Place, postgresql_place, sqlite_place
from tests.services import PostgresProcess

KINDS = (Tenant, Principal, Credential, Role, Binding, Device)
Identity = tuple[type[Entry], str, str | None]

few = st.sampled_from(["a", "b"])
tenants = st.sampled_from([None, "a", "b"])
texts = st.sampled_from(["", "x", "y'%s\\"])
lists = st.sampled_from([(), ("*",), ("x", "", "y")])
instants = st.sampled_from([None, 0, 2**63 - 1])

entries: st.SearchStrategy[Entry] = st.one_of(
    st.builds(Tenant, id=few, name=texts, devices=lists, created_us=st.just(1)),
    st.builds(Principal, id=few, tenant_id=tenants, kind=st.sampled_from(Kind), name=few, disabled_us=instants),
    st.builds(
        Credential,
        id=few,
        principal_id=few,
        scheme=st.just(Scheme.KEY),
        name=texts,
        digest=st.sampled_from([None, b"1", b"2"]),
        narrow=lists,
        created_us=st.just(1),
        revoked_us=st.sampled_from([None, None, 7]),
        last_used_us=instants,
    ),
    st.builds(Role, name=few, tenant_id=tenants, rules=lists),
    st.builds(
        Binding,
        id=few,
        subject=st.sampled_from(["a", "b", "group:a", "group:"]),
        role=texts,
        tenant_id=tenants,
        devices=lists,
    ),
    st.builds(Device, id=few, tenant_id=few, labels=st.dictionaries(texts, texts, max_size=2), note=texts),
)
changes: st.SearchStrategy[Change] = st.one_of(
    entries.map(Put),
    entries.map(Put),
    st.builds(Remove, kind=st.sampled_from(KINDS), id=few),
    st.builds(Remove, kind=st.just(Role), id=few, tenant_id=tenants),
    st.builds(Revoke, credential_id=few, at_us=st.sampled_from([5, 6, 7])),
)


class Model:
    """A directory made of dictionaries: the model."""

    def __init__(self) -> None:
        self.version = 0
        self.entries: dict[Identity, Entry] = {}

    def apply(self, made: list[Change], expected: int | None) -> object:
        if expected is not None and expected != self.version:
            return VersionConflictError
        before = dict(self.entries)
        for change in made:
            if (wrong := self._make(change)) is not None:
                self.entries = before
                return wrong
        self.version += bool(made)
        return self.version

    def touch(self, used: dict[str, int]) -> None:
        for identity, at in used.items():
            credential = self.entries.get((Credential, identity, None))
            if isinstance(credential, Credential) and (credential.last_used_us is None or credential.last_used_us < at):
                self.entries[Credential, identity, None] = replace(credential, last_used_us=at)

    def document(self, cluster_id: str) -> Document:
        found: dict[type[Entry], list[Any]] = {kind: [] for kind in KINDS}
        for (kind, *_), entry in sorted(self.entries.items(), key=lambda one: (one[0][2] or "", one[0][1])):
            found[kind].append(entry)
        return Document(
            cluster_id=cluster_id,
            version=self.version,
            tenants=tuple(found[Tenant]),
            principals=tuple(found[Principal]),
            credentials=tuple(found[Credential]),
            roles=tuple(found[Role]),
            bindings=tuple(found[Binding]),
            devices=tuple(found[Device]),
        )

    def _make(self, change: Change) -> type[Exception] | None:
        match change:
            case Put(entry=entry):
                return self._put(entry)
            case Remove():
                identity = (change.kind, change.id, change.tenant_id if change.kind is Role else None)
                if identity not in self.entries:
                    return EntryNotFoundError
                gone = self.entries.pop(identity)
                return EntryConflictError if any(gone_is_named(gone, by) for by in self.entries.values()) else None
            case Revoke():
                credential = self.entries.get((Credential, change.credential_id, None))
                if not isinstance(credential, Credential):
                    return EntryNotFoundError
                if credential.revoked_us is None:
                    self.entries[Credential, credential.id, None] = replace(credential, revoked_us=change.at_us)
        return None

    def _put(self, entry: Entry) -> type[Exception] | None:
        identity = (type(entry), *identity_of(entry))
        old = self.entries.get(identity)
        if isinstance(entry, Credential) and isinstance(old, Credential):
            if old.revoked_us is not None and entry.revoked_us != old.revoked_us:
                return EntryConflictError
            entry = replace(entry, last_used_us=old.last_used_us)
        named = [(Tenant, getattr(entry, "tenant_id", None)), (Principal, principal_of(entry))]
        if any(name is not None and (kind, name, None) not in self.entries for kind, name in named):
            return EntryConflictError
        others = [one for key, one in self.entries.items() if key[0] is type(entry) and key != identity]
        if any(taken(entry) is not None and taken(entry) == taken(one) for one in others):
            return EntryConflictError
        self.entries[identity] = entry
        return None


def principal_of(entry: Entry) -> str | None:
    match entry:
        case Credential():
            return entry.principal_id
        case Binding() if not entry.subject.startswith("group:"):
            return entry.subject
    return None


def taken(entry: Entry) -> object:
    match entry:
        case Principal():
            return (entry.tenant_id, entry.name)
        case Credential():
            return entry.digest
    return None


def gone_is_named(gone: Entry, by: Entry) -> bool:
    match gone:
        case Tenant():
            return getattr(by, "tenant_id", None) == gone.id
        case Principal():
            return principal_of(by) == gone.id
    return False


@dataclass
class Stage:
    """Both databases; connections and tables outlive a history."""

    runner: asyncio.Runner
    places: tuple[Place, Place]
    directories: tuple[AccessDirectory, AccessDirectory]
    steps: int = 0

    def run(self, call: Callable[[AccessDirectory], Awaitable[Any]]) -> list[Any]:
        """Return what the call gave or raised, in each."""

        async def outcome(directory: AccessDirectory) -> object:
            try:
                return await call(directory)
            except (EntryConflictError, EntryNotFoundError, VersionConflictError) as error:
                return type(error)

        return [self.runner.run(outcome(one)) for one in self.directories]

    def empty(self) -> None:
        for place in self.places:
            for table in ("devices", "removed_devices", "bindings", "roles", "credentials", "principals", "tenants"):
                place.execute(f"DELETE FROM {table}")  # noqa: S608 - one of the names above
            place.execute("UPDATE access_meta SET version = 0")


@pytest.fixture
def stage(postgresql: PostgresProcess, tmp_path: Path) -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        places = (sqlite_place(tmp_path), postgresql_place(postgresql))
        directories = (places[0].open(), places[1].open())
        for one in directories:
            runner.run(one.migrate())
        yield Stage(runner, places, directories)
        for place in places:
            runner.run(place.close())


class Histories(RuleBasedStateMachine):
    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.model = Model()
        self.known: Document | None = None
        stage.empty()

    @rule(made=st.lists(changes, max_size=3), behind=st.sampled_from([None, None, 0, 1]))
    def apply(self, made: list[Change], behind: int | None) -> None:
        expected = None if behind is None else self.model.version - behind
        outcome = self.model.apply(made, expected)
        assert self.stage.run(lambda one: one.apply(made, expected_version=expected)) == [outcome, outcome]

    @rule(used=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 3), max_size=3))
    def touch(self, used: dict[str, int]) -> None:
        self.model.touch(used)
        self.stage.run(lambda one: one.touch(used))

    @invariant()
    def they_agree(self) -> None:
        self.stage.steps += 1
        expected = self.model.document("cluster-1")
        assert self.stage.run(lambda one: one.read()) == [expected, expected]
        assert self.stage.run(lambda one: one.version()) == [self.model.version] * 2
        known = self.known
        assert self.stage.run(lambda one: one.read(known)) == [expected, expected]

    @rule()
    def remember(self) -> None:
        """From now on devices are read that changed since."""
        self.known = self.model.document("cluster-1")


@pytest.mark.timeout(900)
def test_random_histories_agree(stage: Stage) -> None:
    class OnStage(Histories):
        def __init__(self) -> None:
            super().__init__(stage)

    run_state_machine_as_test(
        OnStage,
        settings=settings(
            max_examples=8,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )
    assert stage.steps >= 150
