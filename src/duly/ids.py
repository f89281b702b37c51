"""New ids: a readable prefix and a UUID of version 7.

Ids made later sort later, by the millisecond; within one millisecond, chance decides.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from secrets import token_bytes

from duly.clock import Clock, SystemClock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def new_id(
    prefix: str, *, clock: Clock | None = None, entropy: Callable[[int], bytes] = token_bytes
) -> str:
    """The prefix and 32 hexadecimal digits: 48 bits of milliseconds, then 74 of chance."""
    ms = ((clock or SystemClock()).now() - _EPOCH) // _MS
    chance = int.from_bytes(entropy(10), "big")
    high, low = chance >> 68, chance & ((1 << 62) - 1)
    return f"{prefix}{ms:012x}{0x7000 | high:04x}{(0b10 << 62) | low:016x}"
