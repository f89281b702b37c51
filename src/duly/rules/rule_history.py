"""Rule history: the triggers in force during a pause, and the times that each missed.

Computed from the edits that changed the trigger, each with the trigger it replaced. Times of a rule
that this release cannot read are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from duly.errors import InvalidInput
from duly.model.index_rows import trigger_text
from duly.model.schedule_writes import ScheduleEvent
from duly.rules.spans import Span, span_until
from duly.triggers import Trigger, parse_trigger

MAX_RULES = 100
"""Rule changes of one pause that are evaluated; earlier times of the pause are left out."""


class Change(NamedTuple):
    """An edit that changed the rule: its time, and the stored form of the replaced trigger."""

    at_ms: int
    ended: object


class Lost(NamedTuple):
    """A run of times of one rule during a pause."""

    rule: str
    offset_ms: int
    whole: Span


def retimed_ms(facts: Iterable[ScheduleEvent]) -> int:
    """Return when the timing of a schedule was last set, by its events in order.

    Any edit after it finished or was quarantined counts, because it may have restarted it.
    """
    decided_ms, has_ended = 0, False
    for fact in facts:
        has_ended = has_ended or fact.kind in ("finished", "quarantined")
        is_edit = fact.kind == "changed" and has_ended
        if fact.kind in ("created", "resumed") or "trigger" in fact.detail or is_edit:
            decided_ms = fact.at_ms
    return decided_ms


def lost_times(
    trigger: Trigger, since_ms: int, changes: Sequence[Change], now_ms: int
) -> list[Lost]:
    """Return the times missed in a pause per rule; the last rule is `trigger`."""
    if len(changes) >= MAX_RULES:
        since_ms, changes = changes[0].at_ms, changes[1:]
    found: list[Lost | None] = []
    for changed_ms, ended in changes:
        # A change may be later than `now_ms` where the clocks of hosts decide.
        at_ms = min(changed_ms, now_ms)
        rule = _readable(ended)
        if rule is not None:
            found.append(_lost(rule, since_ms, at_ms))
        since_ms = at_ms
    found.append(_lost(trigger, since_ms, now_ms))
    return [each for each in found if each is not None]


def _readable(stored: object) -> Trigger | None:
    try:
        return parse_trigger(stored)
    except InvalidInput:  # written by a newer release
        return None


def _lost(trigger: Trigger, since_ms: int, now_ms: int) -> Lost | None:
    offset_ms = trigger.offset_ms
    until_ms = now_ms - offset_ms  # a time whose run time is still to come is not lost
    first_ms = trigger.next_after_ms(max(0, since_ms - offset_ms))
    if first_ms is None or first_ms > until_ms:
        return None
    rule = trigger_text(trigger)
    return Lost(rule, offset_ms, span_until(rule, first_ms, until_ms + 1))
