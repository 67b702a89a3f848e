"""Contexts, which name the node to ask and the key for it, in a file of the user, as `homing login` leaves them.

The file is `homing/config.toml` in `$XDG_CONFIG_HOME` (else `~/.config`), for its owner alone:

    current = "production"

    [contexts.production]
    url = "https://homing.example"
    key = "homing_…"
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from homing_client._errors import ConfigurationError

DEFAULT_URL: Final = "http://127.0.0.1:8080"
DEFAULT_NAME: Final = "default"


@dataclass(frozen=True, slots=True)
class Context:
    """The URL of nodes, and the key to show them. Several URLs, by commas, are nodes of one cluster."""

    url: str
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of a user; `current` is the one that counts when nobody names another."""

    current: str | None = None
    known: Mapping[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """The context of this name; ConfigurationError."""
        if name not in self.known:
            allowed = ", ".join(sorted(self.known)) or "none yet; homing login makes one"
            raise ConfigurationError(f"there is no context {name[:64]!a}; known: {allowed}")
        return self.known[name]

    def with_one(self, name: str, context: Context) -> Self:
        """The same with this context, as the current one."""
        return replace(self, current=name, known={**self.known, name: context})

    def without(self, name: str) -> Self:
        """The same without this context; ConfigurationError when there is none."""
        self.get(name)
        known = {one: context for one, context in self.known.items() if one != name}
        return replace(self, current=None if self.current == name else self.current, known=known)

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Read the file; without one there are no contexts. ConfigurationError says what is wrong with it."""
        import tomllib  # noqa: PLC0415 - where there are no contexts it is not needed

        path = path or default_path()
        try:
            with path.open("rb") as file:
                if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                    raise ConfigurationError(f"{path} holds keys, and others may read it: chmod 600 {path}")
                tables = tomllib.load(file)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from None
        try:
            return cls(tables.get("current"), {name: _context(one) for name, one in tables.get("contexts", {}).items()})
        except (AttributeError, KeyError, TypeError):
            raise ConfigurationError(f"{path}: every [contexts.NAME] needs a url, and may have a key") from None

    def save(self, path: Path | None = None) -> Path:
        """Replace the file, for its owner alone, as a whole or not at all; ConfigurationError for what is no text."""
        import tempfile  # noqa: PLC0415 - it takes longer to import than all of this package

        path, text = path or default_path(), self._text()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # 0600 from its first moment
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return path

    def _text(self) -> str:
        lines = ["# Written by homing login and homing context."]
        if self.current is not None:
            lines.append(f"current = {_quoted(self.current)}")
        for name, one in sorted(self.known.items()):
            lines += ["", f"[contexts.{_quoted(name)}]", f"url = {_quoted(one.url)}"]
            if one.key is not None:
                lines.append(f"key = {_quoted(one.key)}")
        return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """A basic string of TOML: one of JSON, but TOML has no pairs of surrogates, and takes no DEL as it is."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ConfigurationError(f"{text[:64]!a} is not UTF-8, and cannot be kept")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _context(table: Mapping[str, Any]) -> Context:
    url, key = table["url"], table.get("key")
    if not isinstance(url, str) or not isinstance(key, str | None):
        raise TypeError
    return Context(url, key)


def default_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The path of this user's contexts."""
    folder = environment.get("XDG_CONFIG_HOME")
    base = Path(folder) if folder and Path(folder).is_absolute() else Path.home() / ".config"
    return base / "homing" / "config.toml"


def resolve(
    url: str | None = None,
    key: str | None = None,
    context: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Context:
    """Return the URL to ask, and the key for it.

    What is given counts, then `HOMING_URL` and `HOMING_KEY`, then the context. Of a context that is given they count
    for nothing that it has itself: who names it means its key as well as its URL.

    A context is the one that is given, or `HOMING_CONTEXT`, or the current one. Its key is for its own URL alone: it is
    not shown to whoever is at another one.
    """
    told = environment.get("HOMING_KEY", "").strip() or None
    url = url or (None if context else environment.get("HOMING_URL")) or None
    key = _checked(key or (None if context else told))
    if url and key:
        return Context(url, key)
    name = context or environment.get("HOMING_CONTEXT")
    contexts = Contexts.load(default_path(environment))
    name = name or contexts.current
    found = contexts.get(name) if name is not None else Context(DEFAULT_URL)
    if url is None or set(addresses(url)) <= set(addresses(found.url)):
        key = key or _checked(found.key)
    return Context(url or found.url, key or _checked(told))


def _checked(key: str | None) -> str | None:
    """The key; ConfigurationError, which does not repeat it, when no header can carry it."""
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigurationError("the key has characters that no key has")
    return key


def addresses(text: str) -> tuple[str, ...]:
    """The URLs in a text, without a slash at their ends; ConfigurationError when one is none."""
    found = tuple(_address(one.strip().rstrip("/")) for one in text.split(",") if one.strip())
    if not found:
        raise ConfigurationError("there is no URL; write http://host:port")
    return found


def _address(text: str) -> str:
    """The URL itself, its scheme in small letters as everybody looks for it; ConfigurationError."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"{text[:64]!a}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigurationError(f"{text[:64]!a} is not a URL; write http://host:port")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError(f"{parts.hostname!a}: a URL of a node has no user, query or fragment")
    return parts.scheme + text[len(parts.scheme) :]
