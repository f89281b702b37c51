"""Station 7: how often and how soon a failed attempt is tried again."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from duly.errors import InvalidInput
from duly.triggers.durations import duration_text

Backoff = Literal["none", "fixed", "exponential"]
MAX_ATTEMPTS = 1_000
MAX_DELAY_MS = 30 * 86_400_000


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How often and how soon a failed attempt is tried again."""

    attempts: int = 5
    """How often a job is tried, the first time included."""
    backoff: Backoff = "exponential"
    """`none`, `fixed`, or `exponential`: doubled after each attempt."""
    first_delay_ms: int = 1_000
    """After the first attempt."""
    longest_delay_ms: int = 600_000
    """The most that doubling comes to."""
    jitter: bool = True
    """Wait by chance for half of the delay to all of it, so that failures do not come in step."""

    def __post_init__(self) -> None:
        if self.backoff not in get_args(Backoff):
            raise InvalidInput(f"backoff {self.backoff!r}; allowed: {', '.join(get_args(Backoff))}")
        if type(self.attempts) is not int or not 1 <= self.attempts <= MAX_ATTEMPTS:
            raise InvalidInput(f"attempts is {self.attempts!r}; allowed: 1 to {MAX_ATTEMPTS}")
        for delay in (self.first_delay_ms, self.longest_delay_ms):
            if type(delay) is not int:
                raise InvalidInput(f"a delay is {delay!r}; allowed: whole milliseconds")
        if not 0 <= self.first_delay_ms <= self.longest_delay_ms <= MAX_DELAY_MS:
            raise InvalidInput(
                f"first_delay_ms is {duration_text(self.first_delay_ms)} and longest_delay_ms "
                f"{duration_text(self.longest_delay_ms)}; allowed: 0 s to "
                f"{duration_text(MAX_DELAY_MS)}, the first not longer than the longest"
            )

    def delay_ms(self, attempt: int, chance: float) -> int:
        """How long to wait after the attempt of that number; `chance` in [0, 1) spreads it."""
        if self.backoff == "none":
            return 0
        # Past 40 doublings even a millisecond has met the longest delay.
        doublings = min(attempt - 1, 40) if self.backoff == "exponential" else 0
        delay = min(self.first_delay_ms << doublings, self.longest_delay_ms)
        return delay - int(delay * chance / 2) if self.jitter else delay
