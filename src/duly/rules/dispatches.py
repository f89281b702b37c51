"""Station 5: what becomes of a dispatch when its answer comes, or nothing comes. Pure.

Takes how an occurrence is delivered, how often it was posted and what is known now; gives the state
that its ledger row goes to, and why. `dispatching` means that it is posted again.
"""

from __future__ import annotations

from typing import NamedTuple

from duly.model.dispatches import DispatchEnd
from duly.model.jobs import Delivery
from duly.model.ledger import OccurrenceState

MAX_TRIES = 10
"""Posts of one occurrence, the first included; after that it has failed."""
NOT_FOUND_LIMIT = 3
"""So often in a row may an endpoint not know a schedule before its row is quarantined."""

CLOSED = "closed by the endpoint"
GAVE_UP = f"gave up after {MAX_TRIES} posts"
POST_FAILED = "the post failed"
DENIED = "denied by the endpoint"
NOT_FOUND = "the endpoint knows no such schedule"
SCHEDULE_DELETED = "schedule deleted"
TICK_DIED = "unknown: the tick that posted it died"

_S = OccurrenceState


class Fate(NamedTuple):
    """Where a ledger row goes."""

    state: OccurrenceState
    reason: str | None
    """None: as before."""


def decide_lapse(delivery: Delivery, tries: int, *, is_deleted: bool) -> Fate:
    """What becomes of a dispatch whose time has come, or whose lease has ended.

    `tries` are the posts so far: without one it may be posted whatever the delivery.
    """
    if tries and delivery == "at_most_once":
        return Fate(_S.FAILED, TICK_DIED)
    if tries >= MAX_TRIES:
        return Fate(_S.FAILED, GAVE_UP)
    if is_deleted:
        return Fate(_S.WITHDRAWN, SCHEDULE_DELETED)
    return Fate(_S.DISPATCHING, None)


def decide_answer(end: DispatchEnd, delivery: Delivery, tries: int, reason: str | None) -> Fate:
    """What becomes of a dispatch when its post has ended so."""
    match end:
        case "closed":
            return Fate(_S.SUCCEEDED, CLOSED)
        case "failed":
            return Fate(_S.FAILED, reason or POST_FAILED)
        case "denied":
            return Fate(_S.DENIED, reason or DENIED)
        case "not_found":
            return Fate(_S.FAILED, reason or NOT_FOUND)
        case "again":
            if delivery == "at_most_once":
                return Fate(_S.FAILED, reason or POST_FAILED)
            if tries >= MAX_TRIES:
                return Fate(_S.FAILED, f"{GAVE_UP}: {reason}" if reason else GAVE_UP)
            return Fate(_S.DISPATCHING, reason)


def count_not_found(before: int, ends: list[DispatchEnd]) -> int:
    """How often in a row a schedule was not found, after some more answers about it."""
    for end in ends:
        if end == "not_found":
            before += 1
        elif end == "closed":
            before = 0
    return before


def not_found_error(times: int, reason: str | None) -> str:
    """Why a row is quarantined whose schedule was not found so often."""
    return f"{reason or NOT_FOUND} ({times} times in a row)"
