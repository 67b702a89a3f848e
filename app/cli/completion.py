"""The words that the shell offers when somebody presses Tab: from the node, within 300 ms, else nothing."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from homing_client import Homing

PATIENCE: Final = timedelta(milliseconds=300)
MOST: Final = 100
"""More than that nobody reads."""


def _asked(context: typer.Context, ask: Callable[[Homing], Iterable[str]], incomplete: str) -> list[str]:
    """Ask a node for what begins so; nothing when anything at all goes wrong, as nobody asked for a word."""
    from app.cli.calls import quick

    given: dict[str, Any] = context.params
    with suppress(Exception), quick(given.get("url"), given.get("context"), PATIENCE) as homing:
        return sorted({one for one in islice(ask(homing), MOST) if one.startswith(incomplete)})
    return []


def devices(ctx: typer.Context, incomplete: str) -> list[str]:
    """Devices on record, else those that were sent something lately."""

    def ask(homing: Homing) -> Iterable[str]:
        from homing_client import ProblemError

        with suppress(ProblemError):  # a node without a directory
            return [one.id for one in islice(homing.devices(f"{incomplete}*"), MOST)]
        return [one.device_id for one in islice(homing.commands(page_size=MOST), MOST)]

    return _asked(ctx, ask, incomplete)


def profiles(ctx: typer.Context, incomplete: str) -> list[str]:
    """The profiles that the node speaks."""
    return _asked(ctx, lambda homing: (str(one["name"]) for one in homing.profiles()["profiles"]), incomplete)


def methods(ctx: typer.Context, incomplete: str) -> list[str]:
    """The methods of the profile that was typed, of that of the device on record, or else of the default one."""

    def ask(homing: Homing) -> Iterable[str]:
        profile = ctx.params.get("profile") or _profile_of(homing, ctx.params.get("device"))
        return (str(one["name"]) for one in homing.methods(profile)["methods"])

    return _asked(ctx, ask, incomplete)


def _profile_of(homing: Homing, device: str | None) -> str:
    from homing_client import ProblemError

    if device:
        with suppress(ProblemError):
            profile = homing.device_record(device).profile
            if profile:
                return profile
    return str(homing.profiles()["default"])


def commands(ctx: typer.Context, incomplete: str) -> list[str]:
    """The latest commands."""
    return _asked(ctx, lambda homing: (one.id for one in homing.commands(page_size=MOST)), incomplete)


def members(call: str, name: str) -> Callable[[typer.Context, str], list[str]]:
    """This member of all that a method of the client knows."""

    def known(ctx: typer.Context, incomplete: str) -> list[str]:
        return _asked(ctx, lambda homing: (str(one[name]) for one in attrgetter(call)(homing)()), incomplete)

    return known


def contexts(incomplete: str) -> list[str]:
    """The contexts of this user."""
    from homing_client.contexts import Contexts

    with suppress(Exception):
        return sorted(name for name in Contexts.load().known if name.startswith(incomplete))
    return []
