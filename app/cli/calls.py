"""Verbs call a node with this: where, as whom, and which exit code each error is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app import __version__
from app.cli.completion import contexts, devices
from app.cli.output import Form, Stop, out, written
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import Homing, ProblemError

ATTEMPTS: Final = 3
"""Somebody waits at a terminal: better a quick word than a late one."""

PATIENT: Final = 60
"""The attempts of somebody who follows, and leaves that running while a node is restarted."""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "--node",
        metavar="URL",
        help="The URL of a node; separate several with commas.  [default: HOMING_URL, else the context, else http://127.0.0.1:8080]",
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="The context that gives URL and key.", autocompletion=contexts),
]
DeviceArgument = Annotated[
    str, typer.Argument(metavar="DEVICE", help="The device id, such as dock-1.", autocompletion=devices)
]
Output = Annotated[
    Form, typer.Option("--output", "-o", help="Print for people, as one JSON value, or as one JSON value per line.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --output json.")]

STATUSES: Final[Mapping[int, Exit]] = {
    HTTPStatus.UNAUTHORIZED: Exit.NOT_ALLOWED,
    HTTPStatus.FORBIDDEN: Exit.NOT_ALLOWED,
    HTTPStatus.TOO_MANY_REQUESTS: Exit.UNSENT,
    HTTPStatus.BAD_GATEWAY: Exit.UNSENT,
    HTTPStatus.SERVICE_UNAVAILABLE: Exit.UNSENT,
    HTTPStatus.GATEWAY_TIMEOUT: Exit.TIMED_OUT,
}
INTERLOCK: Final = "urn:homing:problem:interlock"
"""A 409 that is no mistake of the caller: the command was not sent, as its device is not ready for it."""


def form(output: Form, *, as_json: bool) -> Form:
    """Return how to print, of the two options that say so."""
    return Form.JSON if as_json else output


@contextmanager
def connected(
    url: str | None,
    context: str | None,
    output: Form = Form.HUMAN,
    *,
    key: str | None = None,
    attempts: int = ATTEMPTS,
) -> Iterator[Homing]:
    """A client; what goes wrong with it ends the verb with a sentence and an exit code."""
    from homing_client import ConfigurationError, Homing, ProblemError, Retry, UnexpectedAnswerError, UnreachableError

    try:
        agent = f"homing/{__version__}"
        with Homing(url, key=key, context=context, retry=Retry(attempts=attempts), agent=agent) as homing:
            yield homing
    except ConfigurationError as error:
        raise Stop(str(error), Exit.USAGE) from None
    except ProblemError as error:
        if output is not Form.HUMAN:
            out.line(written(error.problem))
        raise Stop("" if output is not Form.HUMAN else str(error), code_of(error)) from None
    except (UnreachableError, UnexpectedAnswerError) as error:
        raise Stop(str(error), Exit.UNREACHABLE) from None


def find_node(url: str | None, context: str | None, output: Form = Form.HUMAN) -> None:
    """Return where a node answers; Stop says at once that none does, where others would wait for it."""
    with connected(url, context, output) as homing:
        homing.alive()


@contextmanager
def following(url: str | None, context: str | None, output: Form = Form.HUMAN) -> Iterator[Homing]:
    """A client that waits for a node that is away, once one was there."""
    find_node(url, context, output)
    with connected(url, context, output, attempts=PATIENT) as homing:
        yield homing


def code_of(error: ProblemError) -> Exit:
    """The exit code of what a node refused."""
    if error.type == INTERLOCK:
        return Exit.UNSENT
    other = Exit.USAGE if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else Exit.UNEXPECTED
    return STATUSES.get(error.status, other)


def quick(url: str | None, context: str | None, patience: timedelta) -> Homing:
    """A client for what may fail without a word."""
    from homing_client import NO_RETRY, Homing

    return Homing(url, context=context, retry=NO_RETRY, patience=patience)
