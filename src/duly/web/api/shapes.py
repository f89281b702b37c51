"""Types of request and answer bodies, used for decoding and for OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from duly.model.ledger import OccurrenceState
from duly.model.schedules import MAX_WORDS, HandOver, ScheduleState
from duly.model.scopes import MAX_NAME

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Sentence = Annotated[str, Meta(max_length=MAX_WORDS)]
Runs = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Key = Annotated[str, Meta(min_length=1, max_length=255)]


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all bodies; field names are camelCase in JSON."""


class Asked(Shape, frozen=True, forbid_unknown_fields=True):
    """Base of request bodies; unknown fields are refused, so a typo is not a silent default."""


class Problem(Shape, frozen=True):
    """An error answer."""

    error: str
    message: str | UnsetType = UNSET


class DispatchBody(Shape, frozen=True):
    """A dispatch request."""

    nominal_fire_time: str | UnsetType = UNSET
    idempotency_key: Key | UnsetType = UNSET
    flow: str | UnsetType = UNSET
    schedule_id: str | UnsetType = UNSET


class Accepted(Shape, frozen=True):
    """The job is created."""

    status: Literal["accepted"]
    schedule_id: str
    origin: Literal["static", "dynamic"]
    request_id: str


class NotAgain(Shape, frozen=True):
    """It was dispatched before, or another run is in progress."""

    status: Literal["duplicate", "skipped"]
    schedule_id: str | UnsetType = UNSET
    reason: Literal["in_flight"] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class StaticSchedule(Shape, frozen=True):
    """A schedule that the application's code declares."""

    id: str
    action: str
    cron: str | None
    trigger: dict[str, Any]
    timezone: str
    description: str
    enabled: bool


class Dynamic(Shape, frozen=True):
    """States whether schedules are created at run time, never which."""

    provided: bool


class FlowSchedules(Shape, frozen=True):
    """Schedules of a flow."""

    static: list[StaticSchedule]
    dynamic: Dynamic


class Ticked(Shape, frozen=True):
    """Counts of one tick."""

    posted: int
    closed: int
    again: int
    failed: int


class Delivered(Shape, frozen=True):
    """Outcome of a webhook delivery."""

    status: Literal["accepted", "ignored", "duplicate"]
    request_ids: list[str]


class NewSchedule(Asked, frozen=True):
    """A schedule to be created."""

    name: Name
    trigger: str | dict[str, Any]
    """A cron expression, or the JSON object of a trigger."""
    action: str
    input: Any = None
    description: Sentence = ""
    enabled: bool = True
    note: Sentence = ""
    max_runs: Runs | None = None
    delete_after_completion: bool = False


class Changes(Asked, frozen=True):
    """Fields to change; fields that are not given stay."""

    trigger: str | dict[str, Any] | UnsetType = UNSET
    action: str | UnsetType = UNSET
    input: Any = UNSET
    description: Sentence | UnsetType = UNSET
    note: Sentence | UnsetType = UNSET
    max_runs: Runs | UnsetType | None = UNSET
    delete_after_completion: bool | UnsetType = UNSET
    version: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """Change the schedule only if it still has this version."""


class Note(Asked, frozen=True):
    """Reason of a pause or resume."""

    note: Sentence = ""


class Question(Asked, frozen=True):
    """A trigger to preview."""

    trigger: str | dict[str, Any]
    n: Annotated[int, Meta(ge=1, le=100)] = 5


class ScheduleView(Shape, frozen=True):
    """A schedule as its owner sees it."""

    name: str
    flow: str
    action: str
    trigger: dict[str, Any]
    words: str
    input: Any
    description: str
    note: str
    enabled: bool
    state: ScheduleState
    hand_over: HandOver
    next_at: datetime | None
    """The next nominal time; None: there is none, or it is paused."""
    max_runs: int | None
    delete_after_completion: bool
    """It is deleted once it has finished and its last occurrence has ended."""
    dispatch_id: str
    version: int
    created_at: datetime
    updated_at: datetime


class SchedulePage(Shape, frozen=True):
    """One page, by name."""

    schedules: list[ScheduleView]
    next: str | None
    """Pass it as `after` for the next page; None: this was the last page."""


class PreviewTime(Shape, frozen=True):
    """One upcoming time."""

    at: datetime
    local: str
    remarks: list[str]


class Preview(Shape, frozen=True):
    """A rule in words, and its next times."""

    words: str
    timezone: str
    times: list[PreviewTime]


class OccurrenceView(Shape, frozen=True):
    """The outcome of an occurrence, or of a range of them."""

    nominal_at: datetime
    until_at: datetime
    count: int
    run_at: datetime
    state: OccurrenceState
    request_id: str | None
    reason: str | None
    fired_at: datetime | None
    ended_at: datetime | None


class History(Shape, frozen=True):
    """One page of the ledger, newest first."""

    occurrences: list[OccurrenceView]
    next: datetime | None
    """Pass it as `before` for the next page; None: this was the last page."""
