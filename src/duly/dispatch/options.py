"""What an application decides about its HTTP surface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from duly.dispatch.auth.secrets import Gateway
from duly.dispatch.tick.options import TickOptions
from duly.errors import InvalidInput
from duly.model.principals import Principal
from duly.model.schedules import HandOver
from duly.model.scopes import Scope
from duly.settings import Settings

ParseId = Callable[[str], tuple[Scope, str] | None]
"""Whose schedule an id of a URL names, and its name; None: it names none."""
Authenticate = Callable[[Any], Awaitable[Principal | None] | Principal | None]
"""Who a request comes from (a Starlette Request); None, or the system: nobody known."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bytes of a request's body; larger ones are answered 413 before they are read."""

    dispatch: int = 16 * 1024
    """Of a dispatch, and of a tick."""
    webhook: int = 1024 * 1024
    """Of a delivery."""
    api: int = 512 * 1024
    """Of a call of an end user."""

    def __post_init__(self) -> None:
        for name in ("dispatch", "webhook", "api"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"the {name} limit is {getattr(self, name)}; allowed: 1 or more")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The HTTP surface; as it stands, nobody gets in."""

    gateways: Sequence[Gateway] | None = None
    """Who may dispatch and tick; None: holders of DULY_DISPATCH_SECRETS."""
    authenticate: Authenticate | None = None
    """Who an end user is; None: the API for end users answers 401."""
    parse_id: ParseId | None = None
    """Reads ids that are not `<owner>/<name>`."""
    strict: bool = False
    """Whether a dispatch must name an occurrence that the schedule has about now."""
    strict_within_s: float = 3_600
    """Strict mode: how far from now that occurrence may lie."""
    user_hand_over: HandOver = "jobs"
    """Of schedules that end users make."""
    user_actions: Sequence[str] | None = None
    """What end users may schedule, as `flow.action`; None: every action of a flow."""
    limits: BodyLimits = field(default_factory=BodyLimits)
    """Bytes of a body; more is answered 413 before it is read."""
    tick: TickOptions = field(default_factory=TickOptions)
    """How due schedules of hand-over `http` are posted."""


def gateways_of(options: HttpOptions) -> Sequence[Gateway]:
    """Who may dispatch and tick: as the application says, else as the environment does."""
    if options.gateways is not None:
        return options.gateways
    return [Gateway(secret) for secret in Settings.from_environment().dispatch_secrets]
