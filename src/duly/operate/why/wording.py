"""What an answer is made of: a verdict, facts, and instants and people put into words."""

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
"""Jobs are made so long before their time, or less: what is done to a schedule then concerns it."""


class Verdict(StrEnum):
    """What became of an instant, in one word."""

    FIRED = "fired"
    """Its job began; it succeeded or is at work."""
    FAILED = "failed"
    LATE = "late"
    """Its job waits though its run time has come."""
    WILL_FIRE = "will_fire"
    DISPATCHING = "dispatching"
    NOT_YET_PLANNED = "not_yet_planned"
    """Due, and no planner has come by."""
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
    """It should be in the ledger, and is not there."""


Told = tuple[Verdict, str]


class Fact(NamedTuple):
    """One thing that is stored, by name; instants are ISO-8601 in UTC."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Why, in one word, in one paragraph, and what that stands on."""

    verdict: Verdict
    text: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored about a schedule and an instant."""

    schedule: Schedule | None
    """None: it is deleted."""
    events: Sequence[ScheduleEvent] = ()
    row: IndexRow | None = None
    occurrence: Occurrence | None = None
    """The ledger row that covers the instant."""


@dataclass(slots=True)
class Telling:
    """One answer on its way: what is known, and what was said of it so far."""

    stored: Stored
    life: Sequence[Stretch]
    now_ms: int
    at_ms: int
    here: Stretch | None
    """The stretch of its life that the instant lies in; None: it lies before it."""
    facts: list[Fact] = field(default_factory=list)

    @property
    def zone(self) -> str:
        """Where the schedule's wall is."""
        return "UTC" if self.here is None or self.here.trigger is None else self.here.trigger.tz

    @property
    def at(self) -> str:
        """The instant that was asked about."""
        return self.said(self.at_ms)

    def note(self, name: str, value: str) -> None:
        """Add a fact."""
        self.facts.append(Fact(name, value))

    def note_event(self, event: ScheduleEvent | None) -> None:
        """Add when something was done to the schedule, and by whom."""
        if event is not None:
            self.note(f"{event.kind}_at", self.iso(event.at_ms))
            self.note(f"{event.kind}_by", event.by)

    def said(self, ms: int) -> str:
        """An instant on the wall of the schedule's zone."""
        local = self.local(ms)
        return f"{local:%a %Y-%m-%d} {clock_words(local)} {local:%z}"

    def local(self, ms: int) -> datetime:
        """The same as a datetime."""
        return from_ms(ms).astimezone(ZoneInfo(self.zone))

    def iso(self, ms: int) -> str:
        """An instant for programs."""
        return from_ms(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def rule(self, trigger: Trigger) -> str:
        """A rule in words, with the zone they are true in."""
        return f"{trigger.words}, {trigger.tz}" if trigger.core else trigger.words

    def who(self, event: ScheduleEvent | None, did: str) -> str:
        """Who did it, when, and with which note."""
        if event is None:
            return f"the schedule was {did} from the beginning"
        note = event.detail.get("note")
        said = f" ({note})" if note else ""
        return f"{event.by} {did} the schedule on {self.said(event.at_ms)}{said}"

    def next_event(self) -> ScheduleEvent | None:
        """What somebody did first, of what moves times, since the job could have been made."""
        kinds = ("changed", "paused", "resumed", "deleted")
        since_ms = self.at_ms - AHEAD_MS
        acts = (each for each in self.stored.events if each.kind in kinds)
        return next((each for each in acts if each.at_ms >= since_ms), None)

    def edit(self) -> str:
        """That another rule held then, and who changed it; nothing where it is the same."""
        rule = None if self.here is None else self.here.trigger
        if rule is None or rule == self.life[-1].trigger:
            return ""
        later = (each for each in self.stored.events if each.at_ms > self.at_ms)
        event = next((each for each in later if "trigger" in each.detail), None)
        if event is None or event.kind == "deleted":
            return ""
        self.note_event(event)
        return (
            f" The rule was another one then: {self.rule(rule)}; {event.by} changed it on "
            f"{self.said(event.at_ms)}."
        )
