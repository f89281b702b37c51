"""Which rules held during a pause, and what each of them lost to it. Pure.

Takes the edits that changed the trigger meanwhile, each with the one it ended; gives the runs of
times that came under each. What came under a rule that this release cannot read is in none.
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
"""Changes of the rule in one pause that are looked at; of what came before them nothing is said."""


class Change(NamedTuple):
    """An edit that changed the rule: when, and the trigger that it ended, as stored."""

    at_ms: int
    ended: object


class Lost(NamedTuple):
    """A run of times that came during a pause, under one rule."""

    rule: str
    offset_ms: int
    whole: Span


def retimed_ms(facts: Iterable[ScheduleEvent]) -> int:
    """Return when the timing of a schedule was last decided, by the facts about it in order.

    An edit of one that had ended counts whatever it says: one of them gave it another beginning.
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
    """What a pause swallowed, by the rules that held: the last is the trigger."""
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
    except InvalidInput:  # of a release that knew more
        return None


def _lost(trigger: Trigger, since_ms: int, now_ms: int) -> Lost | None:
    offset_ms = trigger.offset_ms
    until_ms = now_ms - offset_ms  # a time whose run time is still to come is not lost
    first_ms = trigger.next_after_ms(max(0, since_ms - offset_ms))
    if first_ms is None or first_ms > until_ms:
        return None
    rule = trigger_text(trigger)
    return Lost(rule, offset_ms, span_until(rule, first_ms, until_ms + 1))
