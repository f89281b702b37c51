"""Decisions on a dispatch when it is answered or its lease expires.

From the delivery, the number of posts and the answer they compute the new state of the ledger row
and its reason. `dispatching` means that it is posted again.
"""

from __future__ import annotations

from typing import NamedTuple

from duly.model.dispatches import DispatchEnd
from duly.model.jobs import Delivery
from duly.model.ledger import OccurrenceState

MAX_TRIES = 10
"""Posts of one occurrence, including the first; after that it fails."""
NOT_FOUND_LIMIT = 3
"""Consecutive `not_found` answers after which a schedule's row is quarantined."""

CLOSED = "closed by the endpoint"
GAVE_UP = f"gave up after {MAX_TRIES} posts"
POST_FAILED = "the post failed"
DENIED = "denied by the endpoint"
NOT_FOUND = "the endpoint knows no such schedule"
SCHEDULE_DELETED = "schedule deleted"
TICK_DIED = "unknown: the tick that posted it died"

_S = OccurrenceState


class RowState(NamedTuple):
    """The new state of a ledger row."""

    state: OccurrenceState
    reason: str | None
    """None: unchanged."""


def decide_lapse(delivery: Delivery, tries: int, *, is_deleted: bool) -> RowState:
    """Return the fate of a dispatch that is due, or whose lease has expired.

    `tries`: posts so far; at 0 it may be posted with any delivery.
    """
    if tries and delivery == "at_most_once":
        return RowState(_S.FAILED, TICK_DIED)
    if tries >= MAX_TRIES:
        return RowState(_S.FAILED, GAVE_UP)
    if is_deleted:
        return RowState(_S.WITHDRAWN, SCHEDULE_DELETED)
    return RowState(_S.DISPATCHING, None)


def decide_answer(end: DispatchEnd, delivery: Delivery, tries: int, reason: str | None) -> RowState:
    """Return the fate of a dispatch after a post."""
    match end:
        case "closed":
            return RowState(_S.SUCCEEDED, CLOSED)
        case "failed":
            return RowState(_S.FAILED, reason or POST_FAILED)
        case "denied":
            return RowState(_S.DENIED, reason or DENIED)
        case "not_found":
            return RowState(_S.FAILED, reason or NOT_FOUND)
        case "again":
            if delivery == "at_most_once":
                return RowState(_S.FAILED, reason or POST_FAILED)
            if tries >= MAX_TRIES:
                return RowState(_S.FAILED, f"{GAVE_UP}: {reason}" if reason else GAVE_UP)
            return RowState(_S.DISPATCHING, reason)


def count_not_found(before: int, ends: list[DispatchEnd]) -> int:
    """Return how often in a row a schedule was not found, after more answers."""
    for end in ends:
        if end == "not_found":
            before += 1
        elif end == "closed":
            before = 0
    return before


def not_found_error(times: int, reason: str | None) -> str:
    """Return the quarantine error of a row whose schedule was not found."""
    return f"{reason or NOT_FOUND} ({times} times in a row)"
