"""`homing login`, `logout`, `whoami`, `context`: where the nodes are, and as whom they are asked."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.completion import contexts as known
from app.cli.output import Form, Stop, err, needs_terminal, out, table, tell, written
from app.cli.standard_input import read_line
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import Me
    from homing_client.contexts import Contexts

application = typer.Typer(help="Manage contexts. A context has the URL of a cluster and a key.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the context.", autocompletion=known)]
T = TypeVar("T")
_LONGEST: Final = 4096
"""Characters of a key or a password."""


def login(
    url: Annotated[
        str | None, typer.Argument(help="The URL of a node: http://host:port. Separate several with commas.")
    ] = None,
    *,
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="Log in with this name and a password, for twelve hours.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant of the user, if there is one.")] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", "--password-stdin", help="Read the key or the password from standard input.")
    ] = False,
    context: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name of the context.  [default: the host]", autocompletion=known),
    ] = None,
) -> None:
    """Check a key, or a name and password, and save it as the current context.

    Without --user, it asks for an API key; a node without authentication needs none. The context is saved in
    homing/config.toml of $XDG_CONFIG_HOME, readable for you alone. Exit code: 0 saved, 2 wrong input, 6 no node, 8 not
    allowed.
    """
    from homing_client.contexts import DEFAULT_URL, Context, addresses

    where = ",".join(_checked(lambda: addresses(url or DEFAULT_URL)))
    name = context or urlsplit(where.partition(",")[0]).hostname or where
    key: str | None = None
    if user is not None:
        password = _secret("Password", from_stdin=stdin)
        with connected(where, None) as homing:
            key = str(homing.login(user, password, tenant=tenant)["key"])
    elif not _is_open(where):
        key = _secret("API key", from_stdin=stdin)
    me = _who(where, key)
    _save(_contexts().with_one(name, Context(where, key)))
    tell(err, f"{_told(me)} at {where}; kept as context {name}.")


def logout(*, context: ContextName = None) -> None:
    """Revoke the key of a login, and forget the key of the context. Exit code: 0 done, 2 there is no such context."""
    from homing_client import NotAllowedError, ProblemError, UnreachableError
    from homing_client.contexts import Context

    contexts = _contexts()
    name = context or contexts.current
    if name is None:
        raise Stop("there is no current context", Exit.USAGE)
    one = _checked(lambda: contexts.get(name))
    if one.key is None:
        tell(err, f"{name} has no key.")
        return
    from homing_client import Homing

    try:
        with Homing(one.url, key=one.key) as homing:
            homing.logout()
        said = "Its login has ended."
    except UnreachableError:
        said = f"No node was there to end it, so it is still valid: {_revoking(one.key)}."
    except NotAllowedError:
        said = "The node does not take it any more."
    except ProblemError as error:
        by_hand = error.status == HTTPStatus.CONFLICT  # no login has given it
        said = f"It is still valid: {_revoking(one.key)}." if by_hand else f"The node says: {error.detail}."
    _save(type(contexts)(contexts.current, {**contexts.known, name: Context(one.url)}))
    tell(err, f"The key of context {name} is removed here. {said}")


def _revoking(key: str) -> str:
    """Return how to end it: its second part is its public id."""
    return f"homing keys revoke {'_'.join(key.split('_')[1:2]) or 'ID'}"


def whoami(
    *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Show who you are to the node. Exit code: 0 known, 8 not authenticated."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        me = homing.me()
        where = homing.url
    if shown is not Form.HUMAN:
        out.line(written(me.raw))
        return
    tell(out, f"{_told(me)} at {where}")
    for label, value in (("tenant", me.tenant), ("roles", ", ".join(me.roles)), ("key", me.key)):
        if value:
            tell(out, f"  {label:<8}{value}")
    if me.expires_at is not None:
        tell(out, f"  until   {me.expires_at:%Y-%m-%d %H:%M} UTC")
    for one in me.limits:
        left = "counted for each device" if one.left is None else f"{one.left} left on this node"
        tell(out, f"  limit   {one.rule}: {left}")


@application.command("list")
def list_contexts(*, output: Output = Form.HUMAN, as_json: AsJson = False) -> None:
    """List the contexts; * marks the current one."""
    contexts = _contexts()
    values = [
        {"name": name, "url": one.url, "key": one.key is not None, "current": name == contexts.current}
        for name, one in sorted(contexts.known.items())
    ]

    def row(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
        return f"{one['name']}{' *' if one['current'] else ''}", one["url"], "yes" if one["key"] else "no"

    table(form(output, as_json=as_json), values, row, ("context", "url", "key"))


@application.command()
def use(name: Name) -> None:
    """Switch to a context. Exit code: 0 done, 2 there is none of this name."""
    contexts = _contexts()
    one = _checked(lambda: contexts.get(name))
    _save(contexts.with_one(name, one))
    tell(err, f"{name} is current: {one.url}")


@application.command()
def remove(name: Name) -> None:
    """Delete a context and its key. Exit code: 0 done, 2 there is none of this name."""
    contexts = _contexts()
    _save(_checked(lambda: contexts.without(name)))
    tell(err, f"{name} is forgotten.")


def _contexts() -> Contexts:
    from homing_client.contexts import Contexts

    return _checked(Contexts.load)


def _save(contexts: Contexts) -> None:
    try:
        _checked(contexts.save)
    except OSError as error:
        raise Stop(f"the contexts cannot be written: {error}") from None


def _checked(make: Callable[[], T]) -> T:
    from homing_client import ConfigurationError

    try:
        return make()
    except ConfigurationError as error:
        raise Stop(str(error), Exit.USAGE) from None


def _is_open(where: str) -> bool:
    from homing_client import NotAllowedError

    with connected(where, None) as homing:
        try:
            return homing.me().open
        except NotAllowedError:
            return False


def _who(where: str, key: str | None) -> Me:
    with connected(where, None, key=key) as homing:
        return homing.me()


def _secret(what: str, *, from_stdin: bool) -> str:
    if from_stdin:
        given = read_line(_LONGEST)
    else:
        needs_terminal("--stdin")
        given = str(typer.prompt(what, hide_input=True, err=True))
    if not given:
        raise Stop(f"there is no {what.lower()} to log in with", Exit.USAGE)
    return given


def _told(me: Me) -> str:
    return "Nobody is asked who they are" if me.open else f"You are {me.principal}"
