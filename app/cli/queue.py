"""`homing queue`: queues over the event log, and consuming from them, over the HTTP API of a node."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
from collections.abc import Sequence
from datetime import timedelta
from queue import Empty, SimpleQueue
from socket import gethostname
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli import queue_documents as documents
from app.cli.calls import PATIENT, AsJson, ContextName, Output, Url, connected, find_node, form
from app.cli.completion import members
from app.cli.output import Form, Stop, complain, out
from app.cli.queue_handlers import HandlerProcesses
from app.cli.verbs import Verb, group
from app.core.durations import parse_duration
from app.runtime.exits import Exit
from app.runtime.system import SystemClock, new_secret

if TYPE_CHECKING:
    from homing_client import Message

POLL: Final = "2s"
"""The time for which one call waits for events, so that Ctrl-C is heard."""
LEAVING_SECONDS: Final = 5.0
"""The time for which an interrupted consumer waits for threads that have no event: a node that is away keeps them."""
TEMPORARY: Final = 75
"""EX_TEMPFAIL of sysexits.h: the handler says that it may work later."""

application = group(
    "Queues over the event log: each event is handled, tried again, or put aside.",
    {
        "list": Verb("queues.all", "name routes loan max_deliveries order"),
        "show": Verb("queues.get"),
        "delete": Verb("queues.delete"),
        "settle": Verb("queues.settle"),
        "rewind": Verb("queues.rewind"),
        "purge": Verb("queues.purge"),
        "redrive": Verb("queues.redrive"),
        "dead": Verb("queues.dead", "at deliveries reason consumer event"),
        "consumers": Verb("queues.consumers", "consumer asked_at"),
        "send-away": Verb("queues.send_away"),
    },
)

for _verb in (documents.bind, documents.unbind, documents.export, documents.apply):
    application.command()(_verb)

QueueName = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="The name of the queue.",
        show_default=False,
        autocompletion=members("queues.all", "name"),
        callback=documents.checked,
    ),
]


@application.command()
def declare(  # noqa: PLR0913 - one per option
    queue: QueueName,
    *,
    topic: documents.TopicOption = None,
    key: documents.KeyOption = None,
    database: documents.DatabaseOption = "events",
    loan: Annotated[
        str | None, typer.Option(help="The time in which a consumer has to settle an event, such as 30s.")
    ] = None,
    retry: Annotated[
        list[str] | None, typer.Option(help="The time after which to deliver again, such as 1s. Repeatable.")
    ] = None,
    max_deliveries: Annotated[
        int | None, typer.Option(help="The number of deliveries after which an event is put aside.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="device delivers the events of a device one after the other.")
    ] = None,
    ttl: Annotated[str | None, typer.Option(help="Leave out events that are older, such as 1h.")] = None,
    delay: Annotated[str | None, typer.Option(help="Hold back events until they are this old, such as 10s.")] = None,
    single: Annotated[
        bool | None, typer.Option("--single/--many", help="Let only one consumer take at a time.")
    ] = None,
    ends_after: Annotated[str | None, typer.Option(help="Delete the queue when it is unused for this long.")] = None,
    start: Annotated[str | None, typer.Option(help="The start: now, an instant, or how long ago.")] = None,
    if_match: documents.IfMatchOption = None,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Declare a queue. Declaring the same one again changes nothing; --if-match changes it.

    Exit code: 0 done, 2 wrong input or declared otherwise, 6 no node there, 8 not allowed.
    """
    given: dict[str, Any] = {
        "routes": documents.routes_of(topic, key, database),
        "loan": loan,
        "retry": retry or None,
        "max_deliveries": max_deliveries,
        "order": order,
        "ttl": ttl,
        "delay": delay,
        "single": single,
        "ends_after": ends_after,
        "start": start,
    }
    wanted = {name: value for name, value in given.items() if value is not None}
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        declared = homing.queues.declare(queue, wanted, if_match=if_match)
    documents.show(declared, shown, f"queue {queue} is declared")


@application.command()
def consume(
    queue: QueueName,
    *,
    handler: Annotated[
        str | None,
        typer.Option("--exec", metavar="COMMAND", help="Run this for each event, which is its standard input as JSON."),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="The number of events to handle at the same time.")] = 1,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this number of events.")] = None,
    consumer: Annotated[
        str | None,
        typer.Option(help="A name that tells this consumer from others.  [default: host, process id and four digits]"),
    ] = None,
    dead_on_failure: Annotated[
        bool, typer.Option("--dead-on-failure", help="Put an event aside when the command fails, instead of retrying.")
    ] = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Print events, or run a command for each, until Ctrl-C or SIGTERM. Each is settled once it is handled.

    A command that exits with 0 is done with the event; with 75 (EX_TEMPFAIL) the event is tried again, and so it is
    with any other code, unless --dead-on-failure puts it aside. While it runs the event stays lent to it, for ten
    minutes or four loans of the queue. Commands that run are waited for in the end; a second Ctrl-C kills them, and
    gives their events back.

    Exit code: 0 after --count events, 2 wrong input, 6 no node there, 8 not allowed, 130 interrupted.
    """
    work = _Work(queue, handler, count, consumer, dead_on_failure=dead_on_failure)
    find_node(url, context)
    workers = [threading.Thread(target=work.run, args=(url, context), daemon=True) for _ in range(parallel)]
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work.by(workers)
    finally:
        signal.signal(signal.SIGTERM, before)
    if work.failure is not None:
        raise work.failure


def _words_of(command: str) -> list[str]:
    """The words of a command, as a shell reads them; Stop, before anything is taken for it."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Stop(f"--exec: {str(error).lower()} in {command[:64]!a}", Exit.USAGE) from None
    if not words:
        raise Stop("--exec: names no command", Exit.USAGE)
    return words


class _Work:
    """The state that the threads of one consumer share."""

    def __init__(
        self, queue: str, handler: str | None, count: int | None, consumer: str | None, *, dead_on_failure: bool
    ) -> None:
        self.failure: BaseException | None = None
        self._queue = queue
        self._handlers = None if handler is None else HandlerProcesses(_words_of(handler), SystemClock())
        self._loan = timedelta(0)
        self._left = count
        self._consumer = consumer or f"{gethostname()[:40]}-{os.getpid()}-{new_secret()[:4]}"
        self._dead_on_failure = dead_on_failure
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._running = 0
        self._held = 0
        """Events that threads have, and that are not settled."""
        self._ended: SimpleQueue[None] = SimpleQueue()

    def by(self, workers: Sequence[threading.Thread]) -> None:
        """Have it done by these. Interrupted, they end what they have; interrupted once more, they give it back.

        Those that have nothing, or cannot give it back, as their node is away, are waited for only a moment.
        """
        try:
            for one in workers:
                one.start()
                self._running += 1
            while self._running:
                self._wait(None)
        except KeyboardInterrupt:
            self.stop()
            if self._handlers is not None:
                complain("commands that run are waited for; interrupt once more to kill them")
            try:
                self._leave()
                while self._running and self._held:
                    self._wait(LEAVING_SECONDS)
            except KeyboardInterrupt:
                self.end()
                self._leave()
            raise

    def _leave(self) -> None:
        """Wait for all, but no longer than a moment."""
        while self._running and self._wait(LEAVING_SECONDS):
            pass

    def _wait(self, seconds: float | None) -> bool:
        """Wait for the end of one, or for so long; whether one has ended.

        A thread that is joined counts as ended when the join is interrupted (Python 3.11).
        """
        try:
            self._ended.get(timeout=seconds)
        except Empty:
            return False
        self._running -= 1
        return True

    def stop(self) -> None:
        """Let all end when they are done with what they have."""
        self._stopped.set()

    def end(self) -> None:
        """Let nothing be waited for that handles an event."""
        if self._handlers is not None:
            self._handlers.end()

    def run(self, url: str | None, context: str | None) -> None:
        """Handle one event after the other."""
        try:
            with connected(url, context, attempts=PATIENT) as homing:
                if self._handlers is not None:
                    self._loan = parse_duration(homing.queues.get(self._queue)["loan"])
                while not self._stopped.is_set() and self._claim():
                    taken = homing.queue(self._queue).take(1, wait=POLL, consumer=self._consumer)
                    for message in taken:
                        self._hold(1)
                        try:
                            self._handle(message)
                        finally:
                            self._hold(-1)
                    if not taken:
                        self._give_back()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            with self._lock:
                self.failure = self.failure or error
            self.stop()
        finally:
            self._ended.put(None)

    def _claim(self) -> bool:
        """True if one more event is wanted, which this thread handles then."""
        with self._lock:
            if self._left is None:
                return True
            wanted = self._left > 0
            self._left -= wanted
            return wanted

    def _give_back(self) -> None:
        with self._lock:
            if self._left is not None:
                self._left += 1

    def _hold(self, more: int) -> None:
        with self._lock:
            self._held += more

    def _printed(self, line: str) -> bool:
        """False where nobody reads any more, which ends all: `head` has what it wanted, and others get the rest."""
        with self._lock:
            if self.failure is None:
                try:
                    out.line(line)
                except (Stop, SystemExit) as error:
                    self.failure = error
                    self.stop()
            return self.failure is None

    def _handle(self, message: Message) -> None:
        line = json.dumps({"delivery": message.delivery, "database": message.database, **message.event})
        if self._handlers is None:
            if self._printed(line):
                message.done()
            else:
                message.release()
            return
        try:
            code = self._handlers.run(line.encode() + b"\n", self._loan, lambda: self._extended(message))
        except OSError as error:
            message.release()
            raise Stop(f"--exec: {error}", Exit.USAGE) from None
        if code is None:
            message.release()
        elif code == 0:
            if not message.done():
                complain(f"an event of {message.event.topic} was over when its handler ended: others may have it, too")
        elif self._dead_on_failure and code != TEMPORARY:
            message.dead(f"the handler exited with {code}")
        else:
            complain(f"the handler exited with {code} for {message.event.topic}; it is tried again")
            message.retry()

    def _extended(self, message: Message) -> bool:
        """Keep the event for another loan. What a node that is away does not know is asked for again, in time."""
        from homing_client import HomingError

        try:
            return message.extend(self._loan)
        except HomingError:
            return True
