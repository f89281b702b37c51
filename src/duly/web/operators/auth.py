"""Operator authentication: by password, one-time link, or on this machine in development mode.

One object per server holds the operators, the secret, unused links and recent failures.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from secrets import token_bytes, token_urlsafe

from duly.clock import Clock, SystemClock
from duly.errors import InvalidInput
from duly.model.summaries import MAX_SESSION_S
from duly.settings import Settings
from duly.triggers.durations import duration_text
from duly.triggers.instants import to_ms
from duly.web.operators.accounts import Operator, find_operator, is_loopback, parse_operators
from duly.web.operators.sessions import Session, Signer, begin_session, proof, read_session

SESSION_S = 12 * 3_600
LINK_S = 3_600
MAX_LINKS = 100
MIN_SECRET = 16
FAILURES = 5
"""Failed sign-ins per address and per name that are allowed within the window."""
WINDOW_S = 60
MAX_REMEMBERED = 10_000
_AT_ONCE = 2
"""Password checks at once: each costs 32 MB and a core."""
MAX_IN_LINE = 20
"""Sign-ins being checked or waiting for a check; further ones must retry after 1 s."""


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """Options of operator authentication."""

    operators: Sequence[Operator] = ()
    """Accounts that may sign in."""
    secret: bytes = field(default_factory=lambda: token_bytes(32), repr=False)
    """Key that signs sessions; processes behind one address share it. Default: random, so sessions
    end with the process."""
    session_s: int = SESSION_S
    """Lifetime of a session in seconds."""
    metrics_token: str = field(default="", repr=False)
    """Bearer token for reading the metrics; empty: operators only."""
    development_host: str = ""
    """Address that the server listens on in development mode, without sign-in; empty: off."""

    def __post_init__(self) -> None:
        if len(self.secret) < MIN_SECRET:
            raise InvalidInput(f"the session secret has fewer than {MIN_SECRET} bytes")
        if self.metrics_token and len(self.metrics_token) < MIN_SECRET:
            raise InvalidInput(f"the metrics token has fewer than {MIN_SECRET} characters")
        if not 60 <= self.session_s <= MAX_SESSION_S:
            longest = duration_text(MAX_SESSION_S * 1000)
            raise InvalidInput(f"session_s is {self.session_s} s; allowed: 1 min to {longest}")
        if self.development_host and not is_loopback(self.development_host):
            raise InvalidInput(
                f"development without sign-in listens on this machine only, not on "
                f"{self.development_host!r}; use 127.0.0.1, or name operators (DULY_OPERATORS)"
            )

    @classmethod
    def from_settings(cls, settings: Settings, development_host: str = "") -> AuthOptions:
        """Return the options of the environment."""
        secret = settings.session_secret.encode() or token_bytes(32)
        return cls(
            parse_operators(settings.operators),
            secret,
            metrics_token=settings.metrics_token,
            development_host=development_host,
        )


DEVELOPER = Operator("developer", "operator")


@dataclass(frozen=True, slots=True)
class Wait:
    """Refusal of a sign-in without checking it; retry after `s` seconds."""

    s: int


class OperatorAuth:
    """Authentication state of one server."""

    def __init__(self, options: AuthOptions | None = None, *, clock: Clock | None = None) -> None:
        self.options = AuthOptions() if options is None else options
        self.signer = Signer(self.options.secret)
        self._clock = SystemClock() if clock is None else clock
        self._failures = Failures()
        self._links: OrderedDict[str, tuple[Operator, int]] = OrderedDict()
        self._guests: dict[str, Operator] = {}
        self._checking = asyncio.Semaphore(_AT_ONCE)
        self._in_line = 0

    @property
    def is_open(self) -> bool:
        """True in development mode: no sign-in is needed."""
        return bool(self.options.development_host)

    def now_s(self) -> int:
        """Return the time of the session clock, in seconds."""
        return to_ms(self._clock.now()) // 1000

    def operator_of(self, session: Session) -> Operator | None:
        """Return the operator of a session; None: removed, or the password changed since."""
        known = {each.name: each for each in self.options.operators}
        found = known.get(session.name) or self._guests.get(session.name)
        if found is None and self.is_open and session.name == DEVELOPER.name:
            found = DEVELOPER
        if found is None or not hmac.compare_digest(proof(found), session.proof):
            return None
        return found

    def read(self, cookie: str | None) -> tuple[Session, Operator] | None:
        """Return the session of a cookie and its operator; None: not valid."""
        session = None if not cookie else read_session(self.signer, cookie, self.now_s())
        operator = None if session is None else self.operator_of(session)
        return None if session is None or operator is None else (session, operator)

    def begin(self, operator: Operator) -> str:
        """Return the cookie of a new session."""
        return begin_session(self.signer, operator, self.now_s() + self.options.session_s)

    def wait_s(self, name: str, address: str) -> int:
        """Return how many seconds a sign-in must wait; 0: none."""
        now_s = self.now_s()
        return max(self._failures.wait_s(mark, now_s) for mark in _marks(name, address))

    async def sign_in(self, name: str, password: str, address: str) -> Operator | Wait | None:
        """Return the operator, Wait after too many failures, or None for a wrong password."""
        if wait_s := self.wait_s(name, address):
            return Wait(wait_s)
        if self._in_line >= MAX_IN_LINE:
            return Wait(1)
        self._in_line += 1
        try:
            async with self._checking:
                return await self._checked(name, password, address)
        finally:
            self._in_line -= 1

    async def _checked(self, name: str, password: str, address: str) -> Operator | Wait | None:
        # Checked again: concurrent sign-ins may have failed while this one waited. A failure is
        # noted before the next check starts, so this counts all of them.
        if wait_s := self.wait_s(name, address):
            return Wait(wait_s)
        found = await asyncio.to_thread(find_operator, self.options.operators, name, password)
        if found is None:
            for mark in _marks(name, address):
                self._failures.note(mark, self.now_s())
        return found

    def make_link_token(self, operator: Operator) -> str:
        """Return a token that signs in once, within an hour."""
        token = token_urlsafe(24)
        self._links[token] = (operator, self.now_s() + LINK_S)
        while len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)
        return token

    def use_link_token(self, token: str) -> Operator | None:
        """Return the operator of a token and consume the token; None: unknown or expired."""
        operator, until_s = self._links.pop(token, (None, 0))
        if operator is None or self.now_s() >= until_s:
            return None
        self._guests[operator.name] = operator
        return operator


def _marks(name: str, address: str) -> tuple[str, str]:
    """Return the keys by which failures are counted."""
    return f"name:{name[:128]}", f"address:{address}"


class Failures:
    """Recent failures by key; the oldest keys are dropped beyond MAX_REMEMBERED."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, list[int]] = OrderedDict()

    def note(self, mark: str, now_s: int) -> None:
        """Record a failure."""
        times = [each for each in self._times.pop(mark, []) if each > now_s - WINDOW_S]
        self._times[mark] = [*times, now_s][-FAILURES:]
        while len(self._times) > MAX_REMEMBERED:
            self._times.popitem(last=False)

    def wait_s(self, mark: str, now_s: int) -> int:
        """Return the seconds until the next attempt is allowed; 0: now."""
        times = [each for each in self._times.get(mark, []) if each > now_s - WINDOW_S]
        return times[0] + WINDOW_S - now_s if len(times) >= FAILURES else 0
