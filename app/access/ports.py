"""The port that the API asks before it does anything for anybody, and the answer of a node that asks nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.core.access.callers import Caller
from app.core.access.places import ConcurrencyPermit
from app.core.access.rules import AccessRule, Action
from app.core.errors import NeedsSecondPersonError


class Access(Protocol):
    """The port that the API asks before it does anything for anybody."""

    def caller(self, authorization: bytes | None) -> Caller | None:
        """Return the caller who sends this header; None where nobody is asked.

        UnauthenticatedError says why it counts for nothing.
        """

    def check(
        self,
        caller: Caller | None,
        action: Action,
        device: str = "",
        profile: str = "",
        method: str = "",
        tenant_id: str | None = None,
    ) -> None:
        """Return when the caller may. `tenant_id` counts where there is no device: None is Homing itself.

        UnauthenticatedError when the credential has lost its worth meanwhile, DeviceNotFoundError when the caller may
        not even know of the device, ForbiddenError otherwise; UnavailableError when the rules are too old to act on.
        """

    def spend(
        self, caller: Caller | None, action: Action, device: str, profile: str, method: str
    ) -> ConcurrencyPermit | None:
        """`check`, and count it: RateLimitError when the caller has done so as often as the rules allow.

        TooManyOpenError when as much is open; what is given is a place for this, where places are counted.
        """

    def check_proposer(self, caller: Caller | None) -> None:
        """Return when somebody else may approve what the caller asks for; NeedsSecondPersonError."""

    def check_second(
        self, caller: Caller | None, proposer: Caller | None, device: str, profile: str, method: str
    ) -> None:
        """Return when the caller may approve such a command of another person, as a second one. As `check`."""

    def check_approved(
        self, caller: Caller | None, approver: Caller | None, device: str, profile: str, method: str
    ) -> None:
        """Return when the caller may send such a command, as another person approved it who still may. As `check`."""

    def approver(self, caller: Caller | None) -> tuple[Caller, str]:
        """Return the caller as it is kept beside an approval, and the name of the principal."""

    async def renew(self) -> None:
        """Read the rules anew, before something ends for good as somebody may not; UnavailableError.

        Another node may have made a change of which this one has not heard.
        """

    def lasting(self, caller: Caller | None) -> Caller | None:
        """Return the caller as they are kept beside what they ask for: to log out ends nothing of that."""

    def who(self, caller: Caller | None) -> tuple[str | None, str | None]:
        """Return the name of the principal, as far as that is known, and the public id of the key."""

    def may_read(self, caller: Caller | None, device: str, profile: str, method: str) -> bool:
        """True if the caller may know of this command."""

    def identity(self, caller: Caller | None) -> Identity | None:
        """Return the identity of the caller; None where nobody is asked. UnauthenticatedError."""

    def limits(self, caller: Caller | None) -> Sequence[LimitState]:
        """Return the limits that hold for the caller, and what is left of them on this node. UnauthenticatedError."""

    def may_read_some(self, caller: Caller | None, device: str) -> bool:
        """True if there is anything of the device that the caller may know of."""

    @property
    def secret(self) -> str | None:
        """The secret that all nodes of the cluster know and callers do not; None where nobody is asked.

        UnavailableError.
        """

    def profile_of(self, device: str) -> str | None:
        """The profile that is on record for a device, where one is."""

    def tenant_of(self, device: str) -> str:
        """To whom the device belongs; "" where nobody is asked, or nobody owns it."""

    def has_tenant(self, tenant_id: str) -> bool:
        """True if there is such a tenant."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller, as they may know themselves."""

    principal: str
    tenant: str | None
    """None: who operates Homing itself."""
    key: str | None
    """The public id of the key."""
    expires_us: int | None
    """Microseconds since 1970, UTC; None: never."""
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit that holds for a caller, and what is left of it on one node."""

    rule: AccessRule
    share: float
    """The node's part of it, up to 1."""
    left: int | None
    """The number of commands that the node would take now, in turn; None where that depends on the device."""
    open: int | None = None
    """The number of commands that are open on the node, for a limit of open commands."""


_NOBODY: Final = "a second person has to approve this, and this node knows no people: set HOMING_ACCESS_URL"


class Everybody:
    """Asks nobody."""

    def caller(self, authorization: bytes | None) -> Caller | None:
        """None: nobody is asked."""
        del authorization
        return None

    def check(
        self,
        caller: Caller | None,
        action: Action,
        device: str = "",
        profile: str = "",
        method: str = "",
        tenant_id: str | None = None,
    ) -> None:
        """Return."""

    def spend(
        self, caller: Caller | None, action: Action, device: str, profile: str, method: str
    ) -> ConcurrencyPermit | None:
        """None: places are not counted."""
        del caller, action, device, profile, method
        return None

    def check_proposer(self, caller: Caller | None) -> None:
        """NeedsSecondPersonError: there are no people."""
        del caller
        raise NeedsSecondPersonError(_NOBODY)

    def check_second(
        self, caller: Caller | None, proposer: Caller | None, device: str, profile: str, method: str
    ) -> None:
        """NeedsSecondPersonError: there are no people."""
        del proposer, device, profile, method
        self.check_proposer(caller)

    def check_approved(
        self, caller: Caller | None, approver: Caller | None, device: str, profile: str, method: str
    ) -> None:
        """NeedsSecondPersonError: nobody can tell what people may, who were asked when it was approved."""
        del approver, device, profile, method
        self.check_proposer(caller)

    def approver(self, caller: Caller | None) -> tuple[Caller, str]:
        """NeedsSecondPersonError: there are no people."""
        self.check_proposer(caller)
        return Caller(), ""

    async def renew(self) -> None:
        """Return: there are no rules."""

    def lasting(self, caller: Caller | None) -> Caller | None:
        """None: nobody is asked."""
        del caller
        return None

    def who(self, caller: Caller | None) -> tuple[str | None, str | None]:
        """Nobody."""
        del caller
        return None, None

    def may_read(self, caller: Caller | None, device: str, profile: str, method: str) -> bool:
        """True."""
        del caller, device, profile, method
        return True

    def identity(self, caller: Caller | None) -> Identity | None:
        """None."""
        del caller
        return None

    def limits(self, caller: Caller | None) -> Sequence[LimitState]:
        """None of them."""
        del caller
        return ()

    def may_read_some(self, caller: Caller | None, device: str) -> bool:
        """True."""
        del caller, device
        return True

    @property
    def secret(self) -> str | None:
        """None: nobody has anything to hide from anybody."""
        return None

    def profile_of(self, device: str) -> str | None:
        """None: nothing is on record."""
        del device
        return None

    def tenant_of(self, device: str) -> str:
        """Nobody: there are no tenants."""
        del device
        return ""

    def has_tenant(self, tenant_id: str) -> bool:
        """False: there are none."""
        del tenant_id
        return False
