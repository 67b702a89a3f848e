"""`homing status`, `nodes`, `metrics`, `profiles`, `methods`: the nodes, and what they speak."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.completion import profiles as known_profiles
from app.cli.output import Form, Stop, out, table, tell, written
from app.runtime.exits import Exit


def status(
    *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Show whether the node is running and can serve. Exit code: 0 it can, 1 it cannot."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        said = {**homing.index(), **homing.alive()}
        ready = homing.ready()
    said |= {"ready": ready.ready, "state": ready.state, "checks": dict(ready.checks)}
    if shown is Form.HUMAN:
        tell(out, f"{said.get('name')} {said.get('version')}, node {said.get('node_id')}: {ready.state}")
        for name, one in sorted(ready.checks.items()):
            tell(out, f"  {name:<8}{one}")
    else:
        out.line(written(said))
    raise Stop("", Exit.OK if ready.ready else Exit.FAILED)


def nodes(
    *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """List the live nodes of the cluster; * marks the node that answered."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = homing.nodes().nodes
    table(shown, [one.raw for one in found], _node, ("node", "started", "incarnation"))


def _node(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    return (f"{one['node_id']}{' *' if one.get('self') else ''}", str(one["started_at"]), str(one["incarnation"]))


def metrics(*, url: Url = None, context: ContextName = None) -> None:
    """Print the metrics of a node in the Prometheus text format."""
    with connected(url, context) as homing:
        text = homing.metrics()
    out.line(text.rstrip("\n"))


def profiles(
    *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """List the device profiles of the node; * marks the default."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        said = homing.profiles()

    def row(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
        star = " *" if one["name"] == said["default"] else ""
        return f"{one['name']}{star}", str(one["methods"]), str(one["description"])

    table(shown, said["profiles"], row, ("profile", "methods", "what it is"))


def methods(
    profile: Annotated[str, typer.Argument(help="The name of the profile.", autocompletion=known_profiles)],
    *,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """List the methods of a profile. --json shows the JSON Schemas of their params."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = homing.methods(profile)["methods"]
    table(shown, found, lambda one: (one["name"], one["usual"] or "", one["danger"], one["title"]), _METHODS)


_METHODS = ("method", "usual", "danger", "what it does")
