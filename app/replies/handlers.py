"""Asks the handlers of replies: who they are, how long each may take, and how many questions are under way."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from app import __version__
from app.core.clock import Clock, IdFactory, wall_us
from app.core.errors import ConfigurationError, HandlerFailedError, InvalidInputError, UndecodableMessageError
from app.core.payload import MISSING, JsonValue, Missing, decode_json
from app.core.profiles.profile import DeviceProfile, to_json
from app.core.replies.handlers import HANDLER_NAME, MOST_SECRETS, Handler, key_of
from app.core.replies.reply import Document
from app.core.webhooks.endpoints import validate_url
from app.core.webhooks.signatures import signed_headers
from app.profiles.language.faults import ProfileFault, listed
from app.profiles.language.positions import lines_of
from app.runtime.services import Service
from app.runtime.telemetry import Bursts, Counters, Fill
from app.settings import ReplySettings

if TYPE_CHECKING:
    from app.outbound.sender import HttpSender, SendResult  # whose library is loaded by nodes that use it

VARIABLE: Final = "HOMING_REPLY_HANDLERS"
_KEYS: Final = ("url", "secret")


class HttpHandlers:
    """Each is asked once, and over its bound not at all: a device that gets no reply asks again."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        sender: HttpSender,
        *,
        most: int,
        clock: Clock,
        new_ulid: IdFactory,
        counters: Counters,
    ) -> None:
        """`most` is how many questions to one handler may be under way."""
        self._handlers = handlers
        self._sender = sender
        self._most = most
        self._clock = clock
        self._new_ulid = new_ulid
        self._counters = counters
        self._flying: Counter[str] = Counter()
        self._bursts = Bursts(clock)
        self._log = structlog.get_logger()

    @property
    def in_flight(self) -> int:
        """The number of questions under way."""
        return self._flying.total()

    def fills(self) -> dict[str, Fill]:
        """The fill of the handler that is asked most."""
        return {"reply_handlers": Fill(max(self._flying.values(), default=0), self._most)}

    async def ask(self, name: str, question: Document) -> JsonValue | Missing:
        """See the port: what a 2xx says in JSON, MISSING where its body is empty."""
        if self._flying[name] >= self._most:
            raise self._failed(name, "reply_handler_busy", f"{self._most} questions are under way")
        self._flying[name] += 1
        try:
            answer = await self._post(self._handlers[name], question)
        finally:
            self._flying[name] -= 1
        return self._read(name, answer)

    async def _post(self, handler: Handler, question: Document) -> SendResult:
        body = to_json(question)
        now = wall_us(self._clock)
        headers = signed_headers(handler.keys, f"ask_{self._new_ulid()}", body, now)
        self._counters["reply.asked"] += 1
        return await self._sender.ask(handler.url, headers, body)

    def _read(self, name: str, answer: SendResult) -> JsonValue | Missing:
        if answer.timed_out:
            raise self._failed(name, "reply_handler_timeout", answer.reply.reason)
        if answer.reply.status is None:
            raise self._failed(name, "reply_handler_unreachable", answer.reply.reason)
        if not answer.reply.delivered:
            raise self._failed(name, "reply_handler_refused", answer.reply.reason)
        if not answer.said:
            return MISSING
        try:
            return decode_json(answer.said)
        except UndecodableMessageError as error:
            why = f"it says no JSON that is accepted ({error.reason})"
            raise self._failed(name, "reply_handler_unreadable", why) from None

    def _failed(self, name: str, reason: str, why: str) -> HandlerFailedError:
        if count := self._bursts.count(f"{name} {reason}"):
            self._log.warning("reply_handler_failed", handler=name, reason=reason, why=why, count=count)
        return HandlerFailedError(reason)


@dataclass(frozen=True, slots=True)
class HandlerPlane:
    """The handlers of a node, and their life."""

    handlers: HttpHandlers
    service: Service


def open_handlers(
    settings: ReplySettings,
    profiles: Iterable[DeviceProfile],
    *,
    clock: Clock,
    new_ulid: IdFactory,
    counters: Counters,
) -> HandlerPlane | None:
    """None where the settings name none; ConfigurationError, as from `handlers_named`."""
    handlers = handlers_named(settings, profiles)
    if not handlers:
        return None
    from app.outbound.sender import HttpSender  # noqa: PLC0415 - its library is loaded by nodes that use it

    sender = HttpSender(
        allowed=settings.allowed_networks,
        user_agent=f"homing/{__version__}",
        seconds=settings.budget.total_seconds(),
    )
    asking = HttpHandlers(handlers, sender, most=settings.in_flight, clock=clock, new_ulid=new_ulid, counters=counters)
    return HandlerPlane(asking, Service("reply handlers", close=sender.close, fills=asking.fills))


def handlers_named(settings: ReplySettings, profiles: Iterable[DeviceProfile]) -> Mapping[str, Handler]:
    """The handlers of the settings by name; ConfigurationError, also when a profile names one that they do not."""
    handlers = read_handlers(settings.handlers, plain_http=settings.plain_http)
    for profile in profiles:
        for spec in profile.replies:
            if spec.handler is not None and spec.handler not in handlers:
                known = ", ".join(sorted(handlers)) or "none, as none is given"
                raise ConfigurationError(
                    f"profile {profile.name}: reply {spec.name!a}: handler {spec.handler!a} is not in the file of "
                    f"{VARIABLE}; allowed: {known}"
                )
    return handlers


def read_handlers(file: Path | None, *, plain_http: bool) -> Mapping[str, Handler]:
    """The handlers of a file by name; ConfigurationError has a line for each fault, and repeats no secret."""
    if file is None:
        return {}
    try:
        text = file.read_text("utf-8")
        found = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file}: not TOML: {error}") from None
    faults: list[ProfileFault] = []
    handlers = {}
    for name, table in found.items():
        wrong = list(_faults(name, table, plain_http=plain_http))
        faults += wrong
        if not wrong:
            handlers[name] = Handler(table["url"], [key_of(one) for one in _secrets(table["secret"])])
    if faults:
        raise ConfigurationError(listed(str(file), faults, lines_of(text)))
    return handlers


def _faults(name: str, table: object, *, plain_http: bool) -> Iterator[ProfileFault]:
    if not HANDLER_NAME.fullmatch(name):
        yield ProfileFault((name,), "is no name; allowed: a lower-case letter, then up to 31 of a-z 0-9 _ -")
    if not isinstance(table, dict):
        yield ProfileFault((name,), f"is no table; allowed: [{name}] with {' and '.join(_KEYS)} below")
        return
    for key in table.keys() - set(_KEYS):
        yield ProfileFault((name, key), f"is unknown; allowed: {', '.join(_KEYS)}")
    yield from _faults_of_url(name, table.get("url"), plain_http=plain_http)
    secrets = _secrets(table.get("secret"))
    if not 1 <= len(secrets) <= MOST_SECRETS or not all(isinstance(one, str) for one in secrets):
        yield ProfileFault((name, "secret"), "is no secret; allowed: text that begins with whsec_, or a list of two")
        return
    for secret in secrets:
        try:
            key_of(secret)
        except InvalidInputError as error:
            yield ProfileFault((name, "secret"), error.reason)


def _faults_of_url(name: str, url: object, *, plain_http: bool) -> Iterator[ProfileFault]:
    if not isinstance(url, str):
        yield ProfileFault((name, "url"), "is missing, or no text; allowed: https://host[:port]/path")
        return
    try:
        validate_url(url, plain_http=plain_http)
    except InvalidInputError as error:
        also = " (HOMING_REPLY_PLAIN_HTTP=true allows http)" if url.startswith("http://") and not plain_http else ""
        yield ProfileFault((name, "url"), error.reason + also)


def _secrets(value: object) -> list[str]:
    return value if isinstance(value, list) else [] if value is None else [value]  # type: ignore[list-item]  # checked
