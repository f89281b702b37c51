"""Retry policies of jobs."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from duly.errors import InvalidInput
from duly.triggers.durations import duration_text

Backoff = Literal["none", "fixed", "exponential"]
MAX_ATTEMPTS = 1_000
MAX_DELAY_MS = 30 * 86_400_000


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The retry policy of a job."""

    attempts: int = 5
    """Maximum number of attempts, including the first."""
    backoff: Backoff = "exponential"
    """Delay between attempts: `none`, `fixed`, or `exponential` (doubled after each attempt)."""
    first_delay_ms: int = 1_000
    """Delay after the first attempt."""
    longest_delay_ms: int = 600_000
    """Upper bound of the delay."""
    jitter: bool = True
    """Wait a random 50-100 % of the delay, so that retries of many jobs spread out."""

    def __post_init__(self) -> None:
        if self.backoff not in get_args(Backoff):
            raise InvalidInput(f"backoff {self.backoff!r}; allowed: {', '.join(get_args(Backoff))}")
        if type(self.attempts) is not int or not 1 <= self.attempts <= MAX_ATTEMPTS:
            raise InvalidInput(f"attempts is {self.attempts!r}; allowed: 1 to {MAX_ATTEMPTS}")
        for delay in (self.first_delay_ms, self.longest_delay_ms):
            if type(delay) is not int:
                raise InvalidInput(f"a retry delay is {delay!r}; allowed: whole milliseconds")
        if not 0 <= self.first_delay_ms <= self.longest_delay_ms <= MAX_DELAY_MS:
            raise InvalidInput(
                f"first_delay_ms is {duration_text(self.first_delay_ms)} and longest_delay_ms "
                f"{duration_text(self.longest_delay_ms)}; allowed: 0 s to "
                f"{duration_text(MAX_DELAY_MS)}, the first not longer than the longest"
            )

    def delay_ms(self, attempt: int, chance: float) -> int:
        """Return the delay after an attempt; `chance` in [0, 1) is the random share of jitter."""
        if self.backoff == "none":
            return 0
        # After 40 doublings even 1 ms exceeds the longest delay.
        doublings = min(attempt - 1, 40) if self.backoff == "exponential" else 0
        delay = min(self.first_delay_ms << doublings, self.longest_delay_ms)
        return delay - int(delay * chance / 2) if self.jitter else delay
