"""Building blocks of an answer: verdict, facts, and wording of instants and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from duly.model.index_rows import IndexRow
from duly.model.ledger import Occurrence
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import Schedule
from duly.operate.why.history import Stretch
from duly.triggers import Trigger
from duly.triggers.instants import from_ms
from duly.triggers.words import clock_words

AHEAD_MS = 120_000
"""Longest time by which jobs are made ahead; an edit within it can affect the job."""


class Verdict(StrEnum):
    """Outcome of an instant, in one word."""

    FIRED = "fired"
    """Its job began; it succeeded or is running."""
    FAILED = "failed"
    LATE = "late"
    """Its run time has passed, and its job still waits."""
    WILL_FIRE = "will_fire"
    DISPATCHING = "dispatching"
    NOT_YET_PLANNED = "not_yet_planned"
    """Due, and not yet claimed by a planner."""
    NOT_A_TIME = "not_a_time"
    MISSED = "missed"
    SKIPPED = "skipped"
    DENIED = "denied"
    WITHDRAWN = "withdrawn"
    QUARANTINED = "quarantined"
    PAUSED = "paused"
    DELETED = "deleted"
    BEFORE_CREATION = "before_creation"
    FINISHED = "finished"
    EXTERNAL = "external"
    """An outside scheduler decides when it fires."""
    NO_RECORD = "no_record"
    """It should be in the ledger and is not."""


Told = tuple[Verdict, str]


class Fact(NamedTuple):
    """One stored value by name; instants are ISO-8601 in UTC."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Explanation in one word and in one paragraph, with the facts it is based on."""

    verdict: Verdict
    text: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """Stored data about a schedule and an instant."""

    schedule: Schedule | None
    """None: it is deleted."""
    events: Sequence[ScheduleEvent] = ()
    row: IndexRow | None = None
    occurrence: Occurrence | None = None
    """The ledger row that covers the instant."""


@dataclass(slots=True)
class Inquiry:
    """An answer in progress: its inputs and the facts noted so far."""

    stored: Stored
    life: Sequence[Stretch]
    now_ms: int
    at_ms: int
    here: Stretch | None
    """Stretch that contains the instant; None: before the schedule's creation."""
    facts: list[Fact] = field(default_factory=list)

    @property
    def zone(self) -> str:
        """Zone of the schedule."""
        return "UTC" if self.here is None or self.here.trigger is None else self.here.trigger.tz

    @property
    def at(self) -> str:
        """Requested instant, in words."""
        return self.said(self.at_ms)

    def note(self, name: str, value: str) -> None:
        """Add a fact."""
        self.facts.append(Fact(name, value))

    def note_event(self, event: ScheduleEvent | None) -> None:
        """Add the time and the author of an event."""
        if event is not None:
            self.note(f"{event.kind}_at", self.iso(event.at_ms))
            self.note(f"{event.kind}_by", event.by)

    def said(self, ms: int) -> str:
        """Return an instant as text in the schedule's zone."""
        local = self.local(ms)
        return f"{local:%a %Y-%m-%d} {clock_words(local)} {local:%z}"

    def local(self, ms: int) -> datetime:
        """Return an instant as a datetime in the schedule's zone."""
        return from_ms(ms).astimezone(ZoneInfo(self.zone))

    def iso(self, ms: int) -> str:
        """Return an instant as ISO-8601 in UTC."""
        return from_ms(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def rule(self, trigger: Trigger) -> str:
        """Return a rule in words, with its zone."""
        return f"{trigger.words}, {trigger.tz}" if trigger.core else trigger.words

    def who(self, event: ScheduleEvent | None, did: str) -> str:
        """Return a clause with the author, time and note of an event."""
        if event is None:
            return f"the schedule was {did} from the beginning"
        note = event.detail.get("note")
        said = f" ({note})" if note else ""
        return f"{event.by} {did} the schedule on {self.said(event.at_ms)}{said}"

    def next_event(self) -> ScheduleEvent | None:
        """Return the first event that moves times, since the job could have been made."""
        kinds = ("changed", "paused", "resumed", "deleted")
        since_ms = self.at_ms - AHEAD_MS
        acts = (each for each in self.stored.events if each.kind in kinds)
        return next((each for each in acts if each.at_ms >= since_ms), None)

    def edit(self) -> str:
        """Return a sentence if another rule was in force then, with who changed it; else ""."""
        rule = None if self.here is None else self.here.trigger
        if rule is None or rule == self.life[-1].trigger:
            return ""
        later = (each for each in self.stored.events if each.at_ms > self.at_ms)
        event = next((each for each in later if "trigger" in each.detail), None)
        if event is None or event.kind == "deleted":
            return ""
        self.note_event(event)
        return (
            f" The rule was different then: {self.rule(rule)}; {event.by} changed it on "
            f"{self.said(event.at_ms)}."
        )
