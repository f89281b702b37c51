"""Options of an application's HTTP surface."""

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
"""Returns scope and name of the schedule that an id of a URL names; None: it names none."""
Authenticate = Callable[[Any], Awaitable[Principal | None] | Principal | None]
"""Returns the principal of a Starlette Request; None or the system: not signed in."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Most bytes of a request's body; larger ones are answered 413 before they are read."""

    dispatch: int = 16 * 1024
    """Bytes of a dispatch or a tick."""
    webhook: int = 1024 * 1024
    """Bytes of a webhook delivery."""
    api: int = 512 * 1024
    """Bytes of a call of an end user."""

    def __post_init__(self) -> None:
        for name in ("dispatch", "webhook", "api"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"the {name} limit is {getattr(self, name)}; allowed: 1 or more")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Options of the HTTP surface; by default every caller is refused."""

    gateways: Sequence[Gateway] | None = None
    """Callers that may dispatch and tick; None: holders of DULY_DISPATCH_SECRETS."""
    authenticate: Authenticate | None = None
    """Identifies end users; None: the API for end users answers 401."""
    parse_id: ParseId | None = None
    """Parses ids that are not `<owner>/<name>`."""
    strict: bool = False
    """Whether a dispatch must name an occurrence of the schedule close to now."""
    strict_within_s: float = 3_600
    """Strict mode: seconds that the occurrence may be from now."""
    user_hand_over: HandOver = "jobs"
    """Hand-over of schedules that end users create."""
    user_actions: Sequence[str] | None = None
    """Actions that end users may schedule, as `flow.action`; None: every action of a flow."""
    limits: BodyLimits = field(default_factory=BodyLimits)
    """Most bytes of a body; larger ones are answered 413 before they are read."""
    tick: TickOptions = field(default_factory=TickOptions)
    """Options of the tick, which posts due schedules of hand-over `http`."""


def gateways_of(options: HttpOptions, settings: Settings) -> Sequence[Gateway]:
    """Return the callers that may dispatch and tick: as configured, else those of the settings."""
    if options.gateways is not None:
        return options.gateways
    return [Gateway(secret) for secret in settings.dispatch_secrets]
