"""Access on one node as one life: who may do what, and who they are; put together from the settings, or absent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from app.access.administration import AccessAdministrator
from app.access.authority import Authority
from app.access.bootstrap import prepare
from app.access.follower import DirectoryFollower
from app.access.limit_sharer import LimitSharer
from app.access.login.logins import Logins
from app.access.rules_copy import RulesCopier
from app.core.access.approval import SecondPersonPolicy
from app.core.access.keys import Key, KeyFault, parse_key
from app.core.addresses import split_address
from app.core.clock import Clock, wall_us
from app.core.errors import ConfigurationError
from app.kernel import Kernel
from app.plane import Plane
from app.runtime.services import Service
from app.settings import AccessSettings, Settings
from app.store.copies import Copies
from app.store.directory import AccessDirectory

if TYPE_CHECKING:
    from app.access.login.issuer_logins import IssuerLogins
    from app.access.login.oidc import OpenIssuer
    from app.access.login.passwords import Passwords


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPlane:
    """The parts that a node with an access directory has for access, and their services."""

    authority: Authority
    administration: AccessAdministrator
    logins: Logins
    issuer_logins: IssuerLogins | None
    """None where nobody logs in at an issuer."""
    directory: AccessDirectory
    plane: Plane


def open_access(kernel: Kernel) -> AccessPlane | None:
    """The plane on a node with an access directory; nothing is read yet.

    ConfigurationError when settings do not fit, or what they ask for is not installed.
    """
    directory = kernel.adapters.directory
    if directory is None:
        return None
    settings, clock, cluster = kernel.settings, kernel.clock, kernel.cluster
    issuer = _issuer(kernel)
    following = DirectoryFollower(
        directory,
        clock,
        prepare=_preparation(settings, directory, clock),
        interval=settings.access.refresh.total_seconds(),
        changed=kernel.access_changed,
        agreed=cluster.directory,
        copying=_copying(settings, clock, cluster.copies),
    )
    authority = Authority(
        following,
        clock,
        stale=settings.access.stale.total_seconds(),
        nodes=lambda: len(cluster.leased or ()),
        counters=kernel.counters,
        tokens=None if issuer is None else issuer.tokens,
        second=SecondPersonPolicy(settings.access.approver_age, services=settings.access.approver_services),
    )
    administration = AccessAdministrator(directory, authority, clock, audited=settings.audit != "off")
    logins = Logins(
        authority,
        administration,
        _passwords(),
        clock,
        kernel.adapters.random_bytes,
        kernel.counters,
        per_address=settings.access.logins,
    )
    sharing = LimitSharer(authority.limiting.shares, cluster.exchange, authority.counts_open)
    return AccessPlane(
        authority=authority,
        administration=administration,
        logins=logins,
        issuer_logins=None if issuer is None else issuer.logins,
        directory=directory,
        plane=Plane(
            name="access",
            services=[
                *([] if issuer is None else [Service("issuer", issuer.keys.run, close=issuer.keys.close)]),
                Service("limits", sharing.run),
                Service("logins", close=logins.close),
                Service("access", following.run, close=following.close, check=lambda: authority.health),
            ],
        ),
    )


def _issuer(kernel: Kernel) -> OpenIssuer | None:
    if not kernel.settings.oidc.issuer:
        return None
    from app.access.login.oidc import open_issuer  # noqa: PLC0415 - its libraries are an extra

    return open_issuer(kernel.settings.oidc, kernel.clock, kernel.adapters.random_bytes, kernel.counters)


def _copying(settings: Settings, clock: Clock, copies: Copies) -> RulesCopier | None:
    """The copier that signs copies of the rules; None if the URL of the database has no password to sign with."""
    found = split_address(settings.access.url or "")
    return RulesCopier(copies, unquote(found.password), clock, settings.access.stale) if found.password else None


def _passwords() -> Passwords:
    from app.access.login.passwords import Passwords  # noqa: PLC0415 - its library is an extra

    return Passwords()


def _preparation(settings: Settings, directory: AccessDirectory, clock: Clock) -> Callable[[], Awaitable[None]]:
    access = settings.access
    key = bootstrap_key(access)
    migrate = access.migrate or access.url.startswith("sqlite:")
    return lambda: prepare(directory, migrate=migrate, key=key, now_us=wall_us(clock))


def bootstrap_key(access: AccessSettings) -> Key | None:
    """The key of the settings; ConfigurationError when it is none, without repeating it."""
    text, variable = access.bootstrap_key.get_secret_value(), "HOMING_ACCESS_BOOTSTRAP_KEY"
    if access.bootstrap_key_file is not None:
        variable += "_FILE"
        try:
            text = access.bootstrap_key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise ConfigurationError(f"{variable}: {access.bootstrap_key_file} cannot be read: {reason}") from None
    if not text:
        return None
    key = parse_key(text)
    if isinstance(key, KeyFault):
        raise ConfigurationError(f"{variable}: the key is {key}; homing keys new makes one")
    return key
