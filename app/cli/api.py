"""`homing api`: any operation of a node, as it stands in /openapi.json."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from app.cli.calls import ContextName, Url, connected
from app.cli.json_input import parse_json
from app.cli.output import Form, Stop, err, out, tell, written
from app.cli.standard_input import read_all
from app.runtime.exits import Exit

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


def api(
    method: Annotated[str, typer.Argument(help="The HTTP method: GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, typer.Argument(help="The path, such as /v1/roles, with a query if needed.")],
    body: Annotated[str | None, typer.Argument(help="The body as JSON; - reads it from standard input.")] = None,
    *,
    if_match: Annotated[
        str | None,
        typer.Option(metavar="TAG", help="Write only if the current tag is this one; GET prints it on standard error."),
    ] = None,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Call any operation of a node and print the JSON of its answer. http://…/docs shows all operations.

    Exit code: 0 done, 2 wrong input, 5 the node is busy, 6 no node there, 7 it answered strangely, 8 not allowed.
    """
    if method.upper() not in _METHODS:
        raise Stop(f"METHOD: {method[:16]!a} is none; allowed: {', '.join(_METHODS)}", Exit.USAGE)
    try:
        value = None if body is None else parse_json(read_all() if body == "-" else body)
    except ValueError as error:
        raise Stop(f"BODY: not JSON: {error}", Exit.USAGE) from None
    headers = {} if if_match is None else {"If-Match": if_match}
    with connected(url, context, Form.JSON) as homing:
        try:
            entry = homing.request(method.upper(), path if path.startswith("/") else f"/{path}", value, headers=headers)
        except ValueError as error:
            raise Stop(f"PATH: {error}", Exit.USAGE) from None
    if entry.tag is not None:
        tell(err, f"tag {entry.tag}")
    if entry.value is not None:
        out.line(written(entry.value))
