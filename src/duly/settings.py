"""The only reader of the environment.

Takes: variables named DULY_*. Gives: one frozen Settings. A value that is not allowed is refused
with the name of its variable, before anything else starts.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from duly.errors import InvalidInput

Zones = Literal["any", "utc"]
THIS_MACHINE = ("127.0.0.1", "::1")


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
    trusted_proxies: tuple[str, ...] = THIS_MACHINE
    """DULY_TRUSTED_PROXIES: whose word is taken for who calls and whether by HTTPS
    (`X-Forwarded-For`, `X-Forwarded-Proto`): addresses or networks, by commas."""

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

        for each in self.trusted_proxies:
            try:
                ipaddress.ip_network(each)
            except ValueError:
                raise InvalidInput(
                    f"trusted_proxies (DULY_TRUSTED_PROXIES) has {each!r}; allowed: addresses and "
                    "networks, such as 10.1.2.3 or 10.0.0.0/8"
                ) from None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Settings from DULY_* variables; absent ones keep their defaults."""
        found = os.environ if environment is None else environment
        secrets = found.get("DULY_DISPATCH_SECRETS")
        proxies = found.get("DULY_TRUSTED_PROXIES")
        return cls(
            zones=cast(Zones, found.get("DULY_ZONES", "any").lower()),
            url=found.get("DULY_URL") or None,
            dispatch_secrets=() if secrets is None else tuple(map(str.strip, secrets.split(","))),
            base_url=found.get("DULY_BASE_URL", ""),
            operators=found.get("DULY_OPERATORS", ""),
            session_secret=found.get("DULY_SESSION_SECRET", ""),
            metrics_token=found.get("DULY_METRICS_TOKEN", ""),
            trusted_proxies=THIS_MACHINE if proxies is None else _listed(proxies),
        )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))
