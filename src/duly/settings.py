"""The only reader of the environment.

Takes: variables named DULY_*. Gives: one frozen Settings. A value that is not allowed is refused
with the name of its variable, before anything else starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from duly.errors import InvalidInput

Zones = Literal["any", "utc"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be chosen, with its defaults."""

    zones: Zones = "any"
    """Which time zones triggers may use: `any`, or `utc` to refuse every other one."""
    url: str | None = None
    """DULY_URL: the database that operators' commands work on, where they name none."""
    operators: str = field(default="", repr=False)
    """DULY_OPERATORS: who may sign in to the dashboard, as `name:role:hash`, by commas."""
    session_secret: str = field(default="", repr=False)
    """DULY_SESSION_SECRET: signs sign-ins; empty: a new one whenever the process starts."""
    metrics_token: str = field(default="", repr=False)
    """DULY_METRICS_TOKEN: lets a scraper read the metrics; empty: operators only."""

    dispatch_secrets: tuple[str, ...] = field(default=(), repr=False)
    """Who holds one may dispatch and tick; the first is the one a tick sends."""
    base_url: str = ""
    """Where the application answers, for ticks."""

    def __post_init__(self) -> None:
        if self.zones not in get_args(Zones):
            allowed = " or ".join(get_args(Zones))
            raise InvalidInput(f"zones (DULY_ZONES) is {self.zones!r}; allowed: {allowed}")
        if not all(self.dispatch_secrets):
            raise InvalidInput(
                "dispatch_secrets (DULY_DISPATCH_SECRETS) has an empty one; make one with "
                "`openssl rand -base64 32`, or leave the variable away to stay closed"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Settings from DULY_* variables; absent ones keep their defaults."""
        found = os.environ if environment is None else environment
        secrets = found.get("DULY_DISPATCH_SECRETS")
        return cls(
            zones=cast(Zones, found.get("DULY_ZONES", "any").lower()),
            url=found.get("DULY_URL") or None,
            dispatch_secrets=() if secrets is None else tuple(map(str.strip, secrets.split(","))),
            base_url=found.get("DULY_BASE_URL", ""),
            operators=found.get("DULY_OPERATORS", ""),
            session_secret=found.get("DULY_SESSION_SECRET", ""),
            metrics_token=found.get("DULY_METRICS_TOKEN", ""),
        )
