# Made by scripts/unasync.py from _async/fleet.py. Do not edit.
"""Fleet runs: one command for many devices, in waves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from homing_client._answers import body_of, content_of, text_of
from homing_client._operations import JsonObject, given
from homing_client._sync.session import Session
from homing_client._wire import Request

_ALL: Final = "/v1/fleet-runs"
_ONE: Final = "/v1/fleet-runs/{run_id}"


class Fleet:
    """The fleet runs of a cluster, as far as the caller may see and change them. `Homing.fleet`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(
        self,
        targets: Mapping[str, Any],
        method: str,
        *,
        params: object = None,
        hold: str | None = None,
        timeout: str | None = None,
        waves: Sequence[object] = (),
        stop: Sequence[Mapping[str, Any]] | str = (),
        in_flight: int | None = None,
        idempotency_key: str | None = None,
        **further: Any,
    ) -> JsonObject:
        """Begin a run: `run({"labels": {"site": "north"}}, "cover_close", waves=[5, "10%"], stop="5%")`.

        `stop` is a list of rules, or the share of failed targets at which the run pauses. `further` are other members
        of a run, such as `windows`, `spread`, `per` and `done`. With an idempotency key, a repeated call is the same
        run.
        """
        rules = [{"share": stop}] if isinstance(stop, str) else list(stop)
        command = given(method=method, params=params, hold=hold, timeout=timeout)
        body = given(targets=targets, command=command, waves=list(waves), stop=rules, in_flight=in_flight) | given(
            **further
        )
        return self.begin(body, idempotency_key=idempotency_key)

    def begin(
        self, document: Mapping[str, Any], *, idempotency_key: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """Begin the run that a document describes; with `dry_run`, only say what it would be."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        query = {"dry_run": "true" if dry_run else None}
        repeatable = dry_run or idempotency_key is not None
        return self._object(Request("POST", _ALL, query=query, body=document, headers=headers, repeatable=repeatable))

    def all(self) -> list[JsonObject]:
        """List the runs, newest first."""
        return self._session.every(_ALL, "runs")

    def get(self, run_id: str) -> JsonObject:
        """Show a run."""
        return self._object(Request("GET", _ONE, path={"run_id": run_id}))

    def targets(self, run_id: str, *, state: str | None = None) -> Iterator[JsonObject]:
        """List the targets of a run, each with its state and its command."""
        cursor: str | None = None
        while True:
            query = {"state": state, "limit": "200", "cursor": cursor}
            page = self._object(Request("GET", _ONE + "/targets", path={"run_id": run_id}, query=query))
            for one in page.get("targets") or ():
                yield one
            cursor = page.get("cursor")
            if cursor is None:
                return

    def targets_csv(self, run_id: str, *, state: str | None = None) -> str:
        """Return all targets of a run as CSV. Text that a spreadsheet would take for a formula begins with `'`."""
        return text_of(self._session.exchange(_table(run_id, state, "text/csv")))

    def targets_parquet(self, run_id: str, *, state: str | None = None) -> bytes:
        """Return all targets of a run as a Parquet file. Raises InvalidInputError where the node cannot write it."""
        request = _table(run_id, state, "application/vnd.apache.parquet")
        return content_of(self._session.exchange(request))

    def explain(self, run_id: str) -> JsonObject:
        """Explain why a run has stopped, or why it goes on."""
        return self._object(Request("GET", _ONE + "/explain", path={"run_id": run_id}))

    def pause(self, run_id: str) -> JsonObject:
        """Pause a run: no further targets get their command. Raises ConflictError."""
        return self._object(Request("POST", _ONE + "/pause", path={"run_id": run_id}))

    def resume(self, run_id: str, *, forgive: bool = False) -> JsonObject:
        """Let a paused run go on. With `forgive`, what has failed so far counts no more. Raises ConflictError."""
        body = {"forgive": forgive}
        return self._object(Request("POST", _ONE + "/resume", path={"run_id": run_id}, body=body, repeatable=False))

    def abort(self, run_id: str, *, cancel_open: bool = False) -> JsonObject:
        """Abort a run and cancel its held commands; with `cancel_open`, also those in flight. Raises ConflictError."""
        body = {"open": "cancel" if cancel_open else "leave"}
        return self._object(Request("POST", _ONE + "/abort", path={"run_id": run_id}, body=body))

    def retry(self, run_id: str, *, of: Sequence[str] | None = None, idempotency_key: str | None = None) -> JsonObject:
        """Begin a new run with the targets that ended in one of these states."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = {} if of is None else {"of": list(of)}
        repeatable = idempotency_key is not None
        place = {"run_id": run_id}
        return self._object(
            Request("POST", _ONE + "/retry", path=place, body=body, headers=headers, repeatable=repeatable)
        )

    def _object(self, request: Request) -> JsonObject:
        return body_of(self._session.exchange(request))


def _table(run_id: str, state: str | None, media_type: str) -> Request:
    """All targets of a run as one file."""
    headers, query = {"Accept": media_type}, {"state": state}
    return Request("GET", _ONE + "/targets", path={"run_id": run_id}, query=query, headers=headers)
