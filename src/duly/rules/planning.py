"""Planning: from a due index row to its occurrences and its next time.

Pure: the store writes the plan in one transaction. Every nominal time from the row's own to its
next one is covered by exactly one occurrence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isqrt
from typing import NamedTuple, Protocol

import msgspec

from duly.errors import InvalidInput, InvalidInstant, InvalidTrigger
from duly.model.index_rows import MAX_MISSED, trigger_of
from duly.model.ledger import OccurrenceState
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.triggers import Every, Once, Trigger, next_after_many
from duly.triggers.instants import STORED_FROM_MS

MAX_PLANNED = 1_000
"""On-time occurrences of one row in one plan; the rest stays due for the next plan."""

_PLANNED = OccurrenceState.PLANNED
_NEVER = Once(STORED_FROM_MS)
"""Placeholder in a batch for a trigger that cannot be evaluated."""


class Plannable(Protocol):
    """The fields of a row that planning needs; an IndexRow, or the columns a claim selects."""

    @property
    def schedule_id(self) -> ScheduleId: ...
    @property
    def trigger(self) -> str: ...
    @property
    def policies(self) -> str: ...
    @property
    def nominal_ms(self) -> int: ...
    @property
    def run_at_ms(self) -> int: ...
    @property
    def runs_left(self) -> int | None: ...


class PlannedOccurrence(NamedTuple):
    """A ledger row to write. A tuple, because a burst creates many."""

    schedule_id: ScheduleId
    nominal_ms: int
    until_ms: int
    """Last nominal time of a swallowed run of times; for a single time, that time."""
    count: int  # type: ignore[assignment]  # the ledger's word, though tuples have it too
    run_at_ms: int
    state: OccurrenceState
    reason: str | None
    """The misfire policy that applied, or the error; None: on time."""


class Plan(NamedTuple):
    """The plan of a row: its occurrences in order of time, and its next time, if any."""

    occurrences: tuple[PlannedOccurrence, ...]
    next_nominal_ms: int | None
    next_run_at_ms: int | None
    runs_left: int | None
    error: str | None = None
    """Why the row is quarantined. None: no next time means finished."""


def plan(row: Plannable, now_ms: int, until_ms: int, policies: Policies) -> Plan:
    """Return the plan of a row with all occurrences whose run time is at most `until_ms`."""
    rule = _rule(row.trigger)
    if isinstance(rule, str):
        return quarantine(row, rule)
    try:
        return _plan(row, rule, policies, now_ms, until_ms)
    except InvalidInput as error:
        return quarantine(row, str(error))


def plan_many(rows: Sequence[Plannable], now_ms: int, until_ms: int) -> list[Plan]:
    """Return the plan of each row by its own policies, in the same order."""
    rules = [_rule(row.trigger) for row in rows]
    try:
        following = next_after_many(
            [_NEVER if isinstance(rule, str) else rule for rule in rules],
            [row.nominal_ms for row in rows],
        )
    except InvalidInstant:  # one row fails the batch, so each is planned alone
        return [_plan_alone(row, now_ms, until_ms) for row in rows]
    plans = []
    for row, rule, nominal in zip(rows, rules, following, strict=True):
        run_at_ms, policies = row.run_at_ms, _policies(row.policies)
        offset_ms = run_at_ms - row.nominal_ms
        if (
            row.runs_left is not None
            or isinstance(policies, str)
            or isinstance(rule, str)
            or not now_ms - policies.grace_ms <= run_at_ms <= until_ms
            or (nominal is not None and nominal + offset_ms <= until_ms)
        ):
            plans.append(_plan_alone(row, now_ms, until_ms))
            continue
        # The common case: one time, and it is not late.
        next_run_at_ms = None if nominal is None else nominal + offset_ms
        plans.append(
            Plan((_on_time(row, row.nominal_ms, run_at_ms),), nominal, next_run_at_ms, None)
        )
    return plans


class DueTimes(NamedTuple):
    """Single due times of a schedule, oldest first."""

    times: Sequence[int]
    admitted: Mapping[int, str | None] = {}
    """Times that do not count as late, each with the reason it was planned for."""
    is_last: bool = True
    """No later time of the schedule is due."""


def plan_times(
    row: Plannable, due: DueTimes, now_ms: int
) -> tuple[list[PlannedOccurrence], int | None]:
    """Return the occurrences of single times by the row's policies, and the runs left.

    The result is that of a plan whose rule has no other times.
    """
    policies, left = policies_of(row.policies), row.runs_left
    offset_ms = row.run_at_ms - row.nominal_ms
    late_before_ms = now_ms - policies.grace_ms - offset_ms
    late = tuple(ms for ms in due.times if ms < late_before_ms and ms not in due.admitted)
    on_time = [ms for ms in due.times if ms >= late_before_ms or ms in due.admitted]
    if left is not None and left <= 0:
        return [], left
    misfire = policies.misfire
    another_runs = bool(on_time) or not due.is_last
    keep = 0 if misfire.kind == "run_once" and another_runs else _keep(misfire, left)
    kept = _kept(misfire, late, keep, now_ms - offset_ms)
    missed = [_missed(row, ms, ms, 1, misfire) for ms in late[: len(late) - len(kept)]]
    if left is not None:
        on_time = on_time[: left - len(kept)]
        left -= len(kept) + len(on_time)
    made = [*missed, *_late(row, kept, misfire, now_ms)]
    for ms in on_time:
        again = _on_time(row, ms, ms + offset_ms)
        made.append(again._replace(reason=due.admitted.get(ms)))
    return made, left


def unplanned_times(row: Plannable, now_ms: int) -> list[int]:
    """Return up to MAX_PLANNED nominal times of a row that have passed, but not their spread."""
    rule = _rule(row.trigger)
    times: list[int] = []
    nominal: int | None = row.nominal_ms
    while nominal is not None and nominal <= now_ms < row.run_at_ms and len(times) < MAX_PLANNED:
        times.append(nominal)
        nominal = None if isinstance(rule, str) else rule.next_after_ms(nominal)
    return times


def taken_back(row: Plannable, times: Sequence[int], reason: str) -> list[PlannedOccurrence]:
    """Return unplanned times of a row as withdrawn occurrences."""
    state, offset_ms = OccurrenceState.WITHDRAWN, row.run_at_ms - row.nominal_ms
    return [
        PlannedOccurrence(row.schedule_id, ms, ms, 1, ms + offset_ms, state, reason) for ms in times
    ]


def policies_of(text: str) -> Policies:
    """Return the policies of their compact form; refuse an invalid one."""
    found = _policies(text)
    if isinstance(found, str):
        raise InvalidInput(found)
    return found


def policies_or_usual(text: str) -> Policies:
    """Return the policies of a job; the defaults if this release cannot read them."""
    found = _policies(text)
    return Policies() if isinstance(found, str) else found


@lru_cache(maxsize=4_096)
def _policies(text: str) -> Policies | str:
    """Return the policies of their compact form, or the error."""
    try:
        return msgspec.json.decode(text, type=Policies)
    except (msgspec.MsgspecError, InvalidInput, UnicodeError, RecursionError) as error:
        return f"the row's policies cannot be read: {error}"


@lru_cache(maxsize=65_536)
def _rule(text: str) -> Trigger | str:
    """Return the trigger of its text, or the error."""
    try:
        trigger = trigger_of(text)
    except InvalidTrigger as error:
        return str(error)
    return trigger if trigger.is_bound else "the trigger is not bound to its schedule"


def quarantine(row: Plannable, error: str) -> Plan:
    """Return the plan of a row that cannot be evaluated or converted to a job."""
    nominal_ms = row.nominal_ms
    state = OccurrenceState.QUARANTINED
    unread = PlannedOccurrence(
        row.schedule_id, nominal_ms, nominal_ms, 1, row.run_at_ms, state, error
    )
    return Plan((unread,), None, None, row.runs_left, error)


def _plan_alone(row: Plannable, now_ms: int, until_ms: int) -> Plan:
    policies = _policies(row.policies)
    if isinstance(policies, str):
        return quarantine(row, policies)
    return plan(row, now_ms, until_ms, policies)


def _plan(row: Plannable, rule: Trigger, policies: Policies, now_ms: int, until_ms: int) -> Plan:
    """Plan misfires by policy, then on-time occurrences, then the next time."""
    offset_ms = row.run_at_ms - row.nominal_ms
    left = row.runs_left
    made: list[PlannedOccurrence] = []
    nominal: int | None = row.nominal_ms
    late_before_ms = now_ms - policies.grace_ms - offset_ms
    if row.nominal_ms < late_before_ms and (left is None or left > 0):
        made, last_ms = _misfires(row, policies.misfire, late_before_ms, now_ms)
        nominal = rule.next_after_ms(last_ms)
        if left is not None:
            left -= sum(each.state is _PLANNED for each in made)
    room = MAX_PLANNED if left is None else min(left, MAX_PLANNED)
    while nominal is not None and nominal + offset_ms <= until_ms and room > 0:
        made.append(_on_time(row, nominal, nominal + offset_ms))
        nominal = rule.next_after_ms(nominal)
        room -= 1
        if left is not None:
            left -= 1
    if nominal is None or (left is not None and left <= 0):
        return Plan(tuple(made), None, None, left)
    return Plan(tuple(made), nominal, nominal + offset_ms, left)


def _on_time(row: Plannable, nominal_ms: int, run_at_ms: int) -> PlannedOccurrence:
    return PlannedOccurrence(row.schedule_id, nominal_ms, nominal_ms, 1, run_at_ms, _PLANNED, None)


def _misfires(
    row: Plannable, misfire: Misfire, before_ms: int, now_ms: int
) -> tuple[list[PlannedOccurrence], int]:
    """Return the occurrences of the late times before `before_ms`, and the last of these times.

    The oldest times are swallowed as one run of times; the newest are kept, oldest first.
    """
    first_ms, offset_ms = row.nominal_ms, row.run_at_ms - row.nominal_ms
    keep = _keep(misfire, row.runs_left)
    newest = newest_times(row.trigger, first_ms, before_ms, keep + 1)
    if misfire.kind == "run_once" and _is_due(row.trigger, newest[-1], now_ms - offset_ms):
        keep = 0  # the on-time occurrence is the one that runs
    kept = _kept(misfire, newest, keep, now_ms - offset_ms)
    made = []
    if len(kept) < len(newest):
        last_ms = newest[len(newest) - len(kept) - 1]
        count = count_times(row.trigger, first_ms, last_ms)
        made.append(_missed(row, first_ms, last_ms, count, misfire))
    return made + _late(row, kept, misfire, now_ms), newest[-1]


def _kept(misfire: Misfire, late: tuple[int, ...], keep: int, now_ms: int) -> tuple[int, ...]:
    """Return the newest late times, which run after all; `now_ms` is without the spread."""
    # After a short outage all times are kept and none is missed.
    kept = late[-keep:] if keep else ()
    if misfire.kind == "catch_up":
        kept = tuple(ms for ms in kept if now_ms - ms <= misfire.max_age_ms)
    return kept


def _missed(
    row: Plannable, first_ms: int, last_ms: int, count: int, misfire: Misfire
) -> PlannedOccurrence:
    run_at_ms = first_ms + row.run_at_ms - row.nominal_ms
    state = OccurrenceState.MISSED
    return PlannedOccurrence(
        row.schedule_id, first_ms, last_ms, count, run_at_ms, state, misfire.kind
    )


def _late(
    row: Plannable, kept: Sequence[int], misfire: Misfire, now_ms: int
) -> list[PlannedOccurrence]:
    """Return late times as planned; catch-ups start one after another from now on."""
    made = []
    for place, ms in enumerate(kept):
        run_at_ms = ms + row.run_at_ms - row.nominal_ms
        if misfire.kind == "catch_up":
            run_at_ms = now_ms + place * 60_000 // misfire.per_minute
        made.append(
            PlannedOccurrence(row.schedule_id, ms, ms, 1, run_at_ms, _PLANNED, misfire.kind)
        )
    return made


@lru_cache(maxsize=4_096)
def _is_due(text: str, after_ms: int, until_ms: int) -> bool:
    """Return whether there is a time after `after_ms`, up to `until_ms`."""
    found = trigger_of(text).next_after_ms(after_ms)
    return found is not None and found <= until_ms


def _keep(misfire: Misfire, runs_left: int | None) -> int:
    """Return the maximum number of misfires that run."""
    match misfire.kind:
        case "skip":
            return 0
        case "run_once":
            return 1
        case "catch_up":
            return misfire.limit if runs_left is None else min(misfire.limit, runs_left)


@lru_cache(maxsize=64)
def newest_times(text: str, first_ms: int, before_ms: int, most: int) -> tuple[int, ...]:
    """Return the newest `most` times from `first_ms` on and before `before_ms`, in order.

    Cached because after an outage all rows of one rule are planned together.
    """
    rule = trigger_of(text)
    # Search for a window with enough times that is short enough to list: a width with too few and
    # one with too many converge by their geometric mean. Times are seconds apart, so the two never
    # meet.
    listed = 4 * most + 64
    short_ms, long_ms = 1, before_ms - first_ms
    width_ms = long_ms
    while True:
        start_ms = before_ms - width_ms
        found = first_ms if start_ms == first_ms else rule.next_after_ms(start_ms - 1)
        times: list[int] = []
        while found is not None and found < before_ms and len(times) <= listed:
            times.append(found)
            found = rule.next_after_ms(found)
        if len(times) > listed:
            long_ms = width_ms
        elif len(times) >= most or start_ms == first_ms:
            return tuple(times[-most:])
        else:
            short_ms = width_ms
        width_ms = isqrt(short_ms * long_ms)


@lru_cache(maxsize=4_096)
def count_times(text: str, first_ms: int, last_ms: int) -> int:
    """Return the number of times from one to another, inclusive; MAX_MISSED may mean "at least"."""
    rule = trigger_of(text)
    count, found = 1, rule.next_after_ms(first_ms)
    if isinstance(rule, Every) and found is not None and found <= last_ms:
        return 2 + (last_ms - found) // rule.interval_ms
    while found is not None and found <= last_ms and count < MAX_MISSED:
        count, found = count + 1, rule.next_after_ms(found)
    return count
