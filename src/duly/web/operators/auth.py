"""Letting operators in: by password, by a one-time link, or in development on this machine only.

One object per server. It holds what a request alone cannot say: the operators, the secret, links
that were not used yet, and how often a sign-in failed of late.
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
"""Failed sign-ins of one address or one name that are let pass within the window."""
WINDOW_S = 60
MAX_REMEMBERED = 10_000
_AT_ONCE = 2
"""Password checks at once: each costs 32 MB and a core."""
MAX_IN_LINE = 20
"""Sign-ins that are checked or wait for it; more are sent away for a second."""


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """How operators are let in."""

    operators: Sequence[Operator] = ()
    """Who may sign in."""
    secret: bytes = field(default_factory=lambda: token_bytes(32), repr=False)
    """Signs sessions; processes behind one address share it. By default sessions end with the
    process."""
    session_s: int = SESSION_S
    """How long a sign-in holds."""
    metrics_token: str = field(default="", repr=False)
    """Lets a scraper read the metrics; empty: operators only."""
    development_host: str = ""
    """The address the server listens on, to let everybody on this machine in without a sign-in."""

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
        """What the environment says."""
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
    """A sign-in that was not looked at; the next one may be made in so many seconds."""

    s: int


class OperatorAuth:
    """Knows who is asking."""

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
        """Whether nobody needs to sign in."""
        return bool(self.options.development_host)

    def now_s(self) -> int:
        """The clock of sessions."""
        return to_ms(self._clock.now()) // 1000

    def operator_of(self, session: Session) -> Operator | None:
        """Who has a session; None: no longer an operator, or the password changed since."""
        known = {each.name: each for each in self.options.operators}
        found = known.get(session.name) or self._guests.get(session.name)
        if found is None and self.is_open and session.name == DEVELOPER.name:
            found = DEVELOPER
        if found is None or not hmac.compare_digest(proof(found), session.proof):
            return None
        return found

    def read(self, cookie: str | None) -> tuple[Session, Operator] | None:
        """The session of a cookie and whose it is."""
        session = None if not cookie else read_session(self.signer, cookie, self.now_s())
        operator = None if session is None else self.operator_of(session)
        return None if session is None or operator is None else (session, operator)

    def begin(self, operator: Operator) -> str:
        """The cookie of a new session."""
        return begin_session(self.signer, operator, self.now_s() + self.options.session_s)

    def wait_s(self, name: str, address: str) -> int:
        """How long a sign-in has to wait; 0: not at all."""
        now_s = self.now_s()
        return max(self._failures.wait_s(mark, now_s) for mark in _marks(name, address))

    async def sign_in(self, name: str, password: str, address: str) -> Operator | Wait | None:
        """The operator whose password it is; a failure is remembered, and too many must wait."""
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
        # Asked again: of those who came together, the first may have failed too often meanwhile.
        # What fails is noted before the next is let in, so it counts the failures of all.
        if wait_s := self.wait_s(name, address):
            return Wait(wait_s)
        found = await asyncio.to_thread(find_operator, self.options.operators, name, password)
        if found is None:
            for mark in _marks(name, address):
                self._failures.note(mark, self.now_s())
        return found

    def make_link_token(self, operator: Operator) -> str:
        """A token that signs in once, within an hour."""
        token = token_urlsafe(24)
        self._links[token] = (operator, self.now_s() + LINK_S)
        while len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)
        return token

    def use_link_token(self, token: str) -> Operator | None:
        """Who a token signs in; the token is used up."""
        operator, until_s = self._links.pop(token, (None, 0))
        if operator is None or self.now_s() >= until_s:
            return None
        self._guests[operator.name] = operator
        return operator


def _marks(name: str, address: str) -> tuple[str, str]:
    """What failures are counted by."""
    return f"name:{name[:128]}", f"address:{address}"


class Failures:
    """How often something failed of late; forgets the oldest marks."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, list[int]] = OrderedDict()

    def note(self, mark: str, now_s: int) -> None:
        """Remember a failure."""
        times = [each for each in self._times.pop(mark, []) if each > now_s - WINDOW_S]
        self._times[mark] = [*times, now_s][-FAILURES:]
        while len(self._times) > MAX_REMEMBERED:
            self._times.popitem(last=False)

    def wait_s(self, mark: str, now_s: int) -> int:
        """How long until the next try may be made."""
        times = [each for each in self._times.get(mark, []) if each > now_s - WINDOW_S]
        return times[0] + WINDOW_S - now_s if len(times) >= FAILURES else 0
