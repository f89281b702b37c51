"""The only reader of the environment: DULY_* variables into one frozen Settings.

An invalid value is refused with the name of its variable, before anything else starts.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast, get_args

from duly.errors import InvalidInput

Zones = Literal["any", "utc"]
N = TypeVar("N", int, float)
D = TypeVar("D")
THIS_MACHINE = ("127.0.0.1", "::1")
HEADER_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 5
BODY_TIMEOUT_S = 30.0
MAX_TIMEOUT_S = 3_600
MAX_CONNECTIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, with their defaults."""

    zones: Zones = "any"
    """Time zones that triggers may use: `any`, or `utc` to refuse all others."""
    url: str | None = None
    """DULY_URL: the database of operator commands that name none."""
    operators: str = field(default="", repr=False)
    """DULY_OPERATORS: who may sign in to the dashboard, as comma-separated `name:role:hash`."""
    session_secret: str = field(default="", repr=False)
    """DULY_SESSION_SECRET: key that signs sessions; empty: a new one at every process start."""
    metrics_token: str = field(default="", repr=False)
    """DULY_METRICS_TOKEN: token for reading the metrics; empty: operators only."""
    trusted_proxies: tuple[str, ...] = THIS_MACHINE
    """DULY_TRUSTED_PROXIES: proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` headers are
    trusted; comma-separated addresses or networks."""

    max_connections: int | None = None
    """DULY_MAX_CONNECTIONS: simultaneous HTTP connections of `duly run` and `duly serve`; further
    ones get 503. Empty: half of the file descriptors that are not reserved, from 8 to 1,000."""
    header_timeout_s: float = HEADER_TIMEOUT_S
    """DULY_HEADER_TIMEOUT_S: seconds a client may take to send the headers of a request."""
    idle_timeout_s: int = IDLE_TIMEOUT_S
    """DULY_IDLE_TIMEOUT_S: whole seconds a connection may stay open between two requests."""
    body_timeout_s: float = BODY_TIMEOUT_S
    """DULY_BODY_TIMEOUT_S: seconds a client may take to send the body of a request (then 408), and
    seconds it may pause reading a response."""

    dispatch_secrets: tuple[str, ...] = field(default=(), repr=False)
    """Secrets that authorise dispatches and ticks; a tick sends the first."""
    base_url: str = ""
    """Base URL of the application, for ticks."""

    def __post_init__(self) -> None:
        if self.zones not in get_args(Zones):
            allowed = " or ".join(get_args(Zones))
            raise InvalidInput(f"zones (DULY_ZONES) is {self.zones!r}; allowed: {allowed}")
        if not all(self.dispatch_secrets):
            raise InvalidInput(
                "dispatch_secrets (DULY_DISPATCH_SECRETS) has an empty secret; generate one with "
                "`openssl rand -base64 32`, or unset the variable to refuse all dispatches"
            )

        self._check_limits()
        for each in self.trusted_proxies:
            try:
                ipaddress.ip_network(each)
            except ValueError:
                raise InvalidInput(
                    f"trusted_proxies (DULY_TRUSTED_PROXIES) has {each!r}; allowed: addresses and "
                    "networks, such as 10.1.2.3 or 10.0.0.0/8"
                ) from None

    def _check_limits(self) -> None:
        """Refuse connection limits that are out of range."""
        if self.max_connections is not None:
            _check_range("max_connections", self.max_connections, 1, MAX_CONNECTIONS)
        _check_range("header_timeout_s", self.header_timeout_s, 0.1, MAX_TIMEOUT_S)
        _check_range("idle_timeout_s", self.idle_timeout_s, 1, MAX_TIMEOUT_S)
        _check_range("body_timeout_s", self.body_timeout_s, 0.1, MAX_TIMEOUT_S)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Return the settings of DULY_* variables; absent ones have their defaults."""
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
            max_connections=_number(found, "DULY_MAX_CONNECTIONS", int, None),
            header_timeout_s=_number(found, "DULY_HEADER_TIMEOUT_S", float, HEADER_TIMEOUT_S),
            idle_timeout_s=_number(found, "DULY_IDLE_TIMEOUT_S", int, IDLE_TIMEOUT_S),
            body_timeout_s=_number(found, "DULY_BODY_TIMEOUT_S", float, BODY_TIMEOUT_S),
        )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _number(found: Mapping[str, str], variable: str, kind: Callable[[str], N], default: D) -> N | D:
    """Return the number of a variable; absent or empty: the default."""
    text = found.get(variable, "").strip()
    if not text:
        return default
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise InvalidInput(f"{variable} is {text!r}; write {what}, or omit it") from None


def _check_range(name: str, value: object, least: float, most: float) -> None:
    if not isinstance(value, int | float) or not least <= value <= most:
        allowed = f"from {least:,} to {most:,}"
        raise InvalidInput(f"{name} (DULY_{name.upper()}) is {value!r}; allowed: {allowed}")
