"""Schedules and their policies.

Validates definitions and raises InvalidInput; a definition is frozen and has a versioned JSON form.
It holds everything about a schedule except its next time, which is in the index row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NewType, get_args

import msgspec

from duly.errors import InvalidInput
from duly.model.json_bounds import check_json_bounds
from duly.model.retries import RetryPolicy
from duly.model.scopes import Scope, check_name, dispatch_id
from duly.triggers import Every, LocalOnce, Once, Trigger, parse_trigger
from duly.triggers.durations import duration_text
from duly.triggers.instants import from_ms, to_ms

ScheduleId = NewType("ScheduleId", str)
HandOver = Literal["jobs", "http", "external"]
Delivery = Literal["at_least_once", "at_most_once"]
Overlap = Literal["skip", "allow", "buffer_one", "cancel_running"]
MisfireKind = Literal["run_once", "skip", "catch_up"]
ScheduleState = Literal["active", "paused", "finished", "quarantined"]
Origin = Literal["dynamic", "static"]
"""Who declares a schedule: `dynamic`: a caller at run time; `static`: the application's code."""

DEFINITION_VERSION = 1
MAX_PRIORITY = 1_000
MAX_WORDS = 1_000
"""Characters in a description or a note."""
MAX_DURATION_MS = 366 * 86_400_000


def _between(what: str, value: int, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidInput(f"{what} is {value!r}; allowed: {low} to {high}")


def _one_of(what: str, value: str, allowed: object) -> None:
    if value not in get_args(allowed):
        raise InvalidInput(f"{what} is {value!r}; allowed: {', '.join(get_args(allowed))}")


def _is_a(what: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise InvalidInput(f"{what} is {value!r}; it must be {kind.__name__}")


class Misfire(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The policy for occurrences found later than their grace."""

    kind: MisfireKind = "run_once"
    limit: int = 10
    """catch_up: occurrences to run at most; the newest are kept."""
    max_age_ms: int = MAX_DURATION_MS
    """catch_up: maximum age."""
    per_minute: int = 60
    """catch_up: starts per minute."""

    def __post_init__(self) -> None:
        _one_of("misfire.kind", self.kind, MisfireKind)
        _between("misfire.limit", self.limit, 1, 10_000)
        _between("misfire.max_age_ms", self.max_age_ms, 1_000, MAX_DURATION_MS)
        _between("misfire.per_minute", self.per_minute, 1, 60_000)


class Policies(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The policies of a schedule's occurrences.

    `delivery`, `retry` and `timeout_ms` are None unless the schedule sets them; None: the action's
    values apply (see `run_options`).
    """

    misfire: Misfire = Misfire()
    grace_ms: int = 60_000
    overlap: Overlap = "skip"
    delivery: Delivery | None = None
    priority: int = 0
    retry: RetryPolicy | None = None
    timeout_ms: int | None = None
    pause_after_failures: int | None = None

    def __post_init__(self) -> None:
        _is_a("misfire", self.misfire, Misfire)
        if self.retry is not None:
            _is_a("retry", self.retry, RetryPolicy)
        _one_of("overlap", self.overlap, Overlap)
        if self.delivery is not None:
            _one_of("delivery", self.delivery, Delivery)
        _between("grace_ms", self.grace_ms, 0, MAX_DURATION_MS)
        _between("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        if self.timeout_ms is not None:
            _between("timeout_ms", self.timeout_ms, 1, MAX_DURATION_MS)
        if self.pause_after_failures is not None:
            _between("pause_after_failures", self.pause_after_failures, 1, 10_000)


_NO_JSON = (TypeError, ValueError, OverflowError, RecursionError)
"""Errors of the encoder for an invalid input."""


class Definition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A schedule as requested by a user, an agent or a programmer."""

    trigger: Trigger
    action: str
    input: Any = None
    description: str = ""
    enabled: bool = True
    note: str = ""
    """Reason for a pause, or any other note."""
    hand_over: HandOver = "jobs"
    policies: Policies = Policies()
    max_runs: int | None = None
    interval_bounds_ms: tuple[int, int] | None = None
    """Shortest and longest interval an action may request; None: it may not."""
    workspace: str | None = None
    """Workspace that the jobs of a user's schedule count in; None: the user's own."""
    origin: Origin = "dynamic"
    delete_after_completion: bool = False
    """Delete the schedule once it has finished and its last occurrence has ended."""
    v: int = DEFINITION_VERSION

    def __post_init__(self) -> None:
        check_name("action", self.action)
        _is_a("trigger", self.trigger, Trigger)
        _is_a("enabled", self.enabled, bool)
        _is_a("delete_after_completion", self.delete_after_completion, bool)
        if self.delete_after_completion and self.origin == "static":
            raise InvalidInput(
                "delete_after_completion is True for a schedule that the code declares, which "
                "would be created again at the next start; use a stored schedule"
            )
        _is_a("policies", self.policies, Policies)
        _one_of("hand_over", self.hand_over, HandOver)
        _one_of("origin", self.origin, Origin)
        if self.workspace is not None:
            Scope("workspace", self.workspace)
        for what, text in (("description", self.description), ("note", self.note)):
            _is_a(what, text, str)
            if len(text) > MAX_WORDS:
                raise InvalidInput(f"{what} has {len(text)} characters; allowed: {MAX_WORDS}")
        if self.max_runs is not None:
            _between("max_runs", self.max_runs, 1, 1_000_000_000)
        if self.interval_bounds_ms is not None:
            shortest, longest = self.interval_bounds_ms
            _between("interval_bounds_ms[1]", longest, 1_000, MAX_DURATION_MS)
            _between("interval_bounds_ms[0]", shortest, 1_000, longest)
        if self.v != DEFINITION_VERSION:
            raise InvalidInput(f"definition version {self.v}; this release: {DEFINITION_VERSION}")

    def to_json(self) -> str:
        """Return the stored form."""
        # The encoder would encode the trigger as a dataclass: pass its own JSON form.
        named = zip(self.__struct_fields__[2:], self.__struct_defaults__, strict=True)
        shown = {name: getattr(self, name) for name, unset in named if getattr(self, name) != unset}
        whole = {"trigger": self.trigger.to_json(), "action": self.action, **shown}
        return msgspec.json.encode(whole, order="deterministic").decode()

    def is_same(self, other: Definition) -> bool:
        """Return whether both have the same stored form; 1, 1.0 and true differ, unlike with ==."""
        try:
            return self.to_json() == other.to_json()
        except _NO_JSON:
            return False

    @classmethod
    def parse(cls, stored: str | bytes | Mapping[str, Any]) -> Definition:
        """Return the definition of a stored form or of external JSON; refuse an invalid one."""
        try:
            if isinstance(stored, str | bytes):
                return _DECODER.decode(stored)
            return msgspec.convert(stored, cls, dec_hook=_decode_trigger)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"invalid definition: {error}") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidInput(f"the definition is not valid JSON: {error}") from None


def _decode_trigger(_type: type, value: object) -> Trigger:
    return parse_trigger(value)


_DECODER = msgspec.json.Decoder(Definition, dec_hook=_decode_trigger)


class _Started(msgspec.Struct):
    action: str


_STARTED = msgspec.json.Decoder(_Started)


def action_in(body: str | None) -> str:
    """Return the action of a stored definition; "" if there is none or it cannot be read."""
    try:
        return "" if body is None else _STARTED.decode(body).action
    except (msgspec.DecodeError, UnicodeError):
        return ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A stored schedule: its key, definition and state."""

    id: ScheduleId
    flow: str
    scope: Scope
    name: str
    definition: Definition
    state: ScheduleState
    version: int
    created_at_ms: int
    updated_at_ms: int
    error: str | None = None
    """Why it is quarantined."""
    runs_had: int | None = None
    """Runs charged to `max_runs`; None: no limit, or stored by a release without the count."""

    @property
    def key(self) -> str:
        """Return the key that decides H and spread; stable over edits and re-creation."""
        return binding_key(self.flow, self.scope, self.name)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on an owner's schedules; for the system only `input_bytes` applies."""

    schedules: int = 1_000
    """Per owner, over all flows; finished ones are not counted."""
    shortest_interval_ms: int = 60_000
    """Shortest interval between two times of a trigger."""
    input_bytes: int = 262_144
    """Size of a schedule's input as JSON."""
    schedules_per_flow: int | None = None
    """Per owner and flow; finished ones are not counted. None: no limit."""


DEFAULT_LIMITS = Limits()


def binding_key(flow: str, scope: Scope, name: str) -> str:
    """Return the text of a schedule's key for hashing."""
    return f"{flow}/{dispatch_id(scope, name)}"


def bind(definition: Definition, key: str, at_ms: int) -> Definition:
    """Return the definition with its trigger bound to a schedule's key and creation time."""
    bound = definition.trigger.bind(key, from_ms(at_ms))
    if bound is definition.trigger:
        return definition
    return msgspec.structs.replace(definition, trigger=bound)


def rebind(definition: Definition, key: str, earlier: Definition, at_ms: int) -> Definition:
    """Return an edited definition, bound; an unchanged interval keeps its earlier anchor."""
    anchor = earlier.trigger.start_at
    kept = bind(definition, key, at_ms if anchor is None else to_ms(anchor))
    return kept if kept.trigger == earlier.trigger else bind(definition, key, at_ms)


def clamp_interval_ms(definition: Definition, asked_ms: int) -> int:
    """Return the requested interval, clamped to the bounds; refuse a schedule without bounds."""
    bounds = definition.interval_bounds_ms
    if bounds is None:
        raise InvalidInput(
            "the schedule has no interval_bounds_ms; set it to let actions change the interval"
        )
    if not isinstance(definition.trigger, Every):
        raise InvalidInput(f"trigger {definition.trigger.words!r} has no interval; use every()")
    return min(max(asked_ms, bounds[0]), bounds[1])


def state_of(definition: Definition) -> ScheduleState:
    """Return the state that a definition alone decides, whatever its hand-over."""
    return "active" if definition.enabled else "paused"


def first_after_ms(definition: Definition, set_at_ms: int) -> int:
    """Return the instant after which the run times of a rule begin.

    It is `set_at_ms`, or just before the run time of a one-time rule that is past within its grace.
    """
    at_ms = _once_run_ms(definition.trigger)
    if at_ms is None or not set_at_ms - definition.policies.grace_ms <= at_ms <= set_at_ms:
        return set_at_ms
    return at_ms - 1


def _once_run_ms(trigger: Trigger) -> int | None:
    """Return the run time of a one-time rule; None: another rule, or no time."""
    if not isinstance(trigger, Once | LocalOnce) or trigger.at is None:
        return None
    return to_ms(trigger.at) + trigger.offset_ms


def _check_once(definition: Definition, now_ms: int) -> None:
    """Refuse a one-time rule that can never run.

    One declared in code is accepted: the code still declares it after its time has passed.
    """
    trigger, grace_ms = definition.trigger, definition.policies.grace_ms
    if definition.origin == "static" or not isinstance(trigger, Once | LocalOnce):
        return
    run_ms = _once_run_ms(trigger)
    if run_ms is None:
        local = trigger.local if isinstance(trigger, LocalOnce) else ""
        raise InvalidInput(
            f"at is {local}, which does not exist in {trigger.tz} because clocks change, and gap "
            "is 'skip'; set another time, or gap 'next_valid' or 'shift'"
        )
    if run_ms < now_ms - grace_ms:
        at = f"{from_ms(run_ms):%Y-%m-%d %H:%M:%S}Z"
        raise InvalidInput(
            f"at is {at}, in the past by more than the misfire grace of {duration_text(grace_ms)}; "
            "set a later time, or a longer policies.grace_ms"
        )


def without_words(definition: Definition) -> Definition:
    """Return the definition without fields that affect no occurrence, for comparison."""
    return msgspec.structs.replace(
        definition, description="", note="", delete_after_completion=False
    )


def is_indexed(definition: Definition) -> bool:
    """Return whether the schedule has an index row while it is active and has a next time.

    An external schedule has none: an outside scheduler fires it.
    """
    return definition.enabled and definition.hand_over != "external"


def accepts_dispatch(state: ScheduleState, *, is_open: bool) -> bool:
    """Return whether a dispatch of a schedule in this state may run.

    `is_open`: a tick holds the occurrence. The last occurrence of a finished schedule is posted
    after its index row is gone, so such a dispatch is accepted.
    """
    return state == "active" or (state == "finished" and is_open)


def check(definition: Definition, scope: Scope, limits: Limits, at_ms: int) -> None:
    """Refuse a new schedule, with a bound trigger, that exceeds the owner's limits."""
    _check_once(definition, at_ms)
    _check_limits(definition, scope, limits, at_ms)


def _check_limits(definition: Definition, scope: Scope, limits: Limits, at_ms: int) -> None:
    check_json_bounds("input", definition.input, limits.input_bytes)
    try:
        size = len(msgspec.json.encode(definition.input))
    except _NO_JSON as error:
        raise InvalidInput(f"input cannot be written as JSON: {error}") from None
    if size > limits.input_bytes:
        raise InvalidInput(f"input has {size} bytes as JSON; allowed: {limits.input_bytes}")
    shortest = _shortest_gap_ms(definition.trigger, at_ms)
    if scope.kind != "system" and shortest < limits.shortest_interval_ms:
        raise InvalidInput(
            f"interval must be at least {duration_text(limits.shortest_interval_ms)} (limit for "
            f"{scope.kind} schedules); {definition.trigger.words!r} fires every "
            f"{duration_text(shortest)}"
        )
    bounds = definition.interval_bounds_ms
    if scope.kind != "system" and bounds and bounds[0] < limits.shortest_interval_ms:
        raise InvalidInput(
            f"interval_bounds_ms[0] must be at least {duration_text(limits.shortest_interval_ms)} "
            f"(limit for {scope.kind} schedules); it is {duration_text(bounds[0])}"
        )
    if definition.hand_over == "http" and shortest < 60_000:
        raise InvalidInput("hand-over http runs once a minute; use hand-over jobs below that")


def check_edit(definition: Definition, earlier: Schedule, limits: Limits, at_ms: int) -> None:
    """Refuse an edit, with a bound trigger, that exceeds the owner's limits.

    Limits may be tighter than when the schedule was created. Unchanged values are checked again
    when the schedule is to run again, not when its owner pauses it or edits a note.
    """
    old = earlier.definition
    is_at_rest = not old.enabled or earlier.state == "quarantined"
    asked = msgspec.structs.replace(
        old,
        trigger=definition.trigger,
        input=definition.input,
        hand_over=definition.hand_over,
        interval_bounds_ms=definition.interval_bounds_ms,
    )
    if definition.trigger != old.trigger:
        _check_once(definition, at_ms)
    if (definition.enabled and is_at_rest) or not asked.is_same(old):
        _check_limits(definition, earlier.scope, limits, at_ms)


@lru_cache(maxsize=4_096)
def _shortest_gap_ms(trigger: Trigger, after_ms: int, sample: int = 60) -> int:
    """Return the shortest interval between the next times; cached, for bulk creation."""
    shortest, last = MAX_DURATION_MS, trigger.next_after_ms(after_ms)
    for _ in range(sample):
        following = None if last is None else trigger.next_after_ms(last)
        if last is None or following is None:
            break
        shortest, last = min(shortest, following - last), following
    return shortest
