"""The audit of a run: what is stored and what ran, against what was asked for and declared.

Takes the database when everything is at rest, and the record of the handlers. Returns counts, of
which all but the allowed ones must be 0, and a line for each fault that it can name.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from duly.model.events import JobEvent
from duly.model.jobs import FINAL, Delivery, Job, JobId, JobState, may_go
from duly.model.ledger import RAN, OccurrenceState
from duly.model.schedules import Definition, Schedule
from duly.triggers.instants import to_ms
from tests.system.application import work
from tests.system.database import Database, Entry
from tests.system.record import Record, Runs

COMPLETED = frozenset({OccurrenceState.SUCCEEDED, OccurrenceState.FAILED})
LISTED = 5
"""Repeated jobs or faults that are listed."""


@dataclass(frozen=True)
class Expected:
    """What a run asked for."""

    jobs: Sequence[JobId] = ()
    """Every job that an answer named."""
    schedules: Sequence[Schedule] = ()
    """Every schedule; their triggers have ended."""
    states: frozenset[OccurrenceState] = COMPLETED
    """What may have become of a nominal time."""
    dead: int | None = 0
    """How many jobs must be dead; None: any number, since processes are killed at random."""
    can_deadlock: bool = True
    """Whether PostgreSQL may have broken deadlocks; their transactions were run again."""


class Interruption(NamedTuple):
    """A claim that was lost."""

    worker: str
    claimed_ms: int
    rescued_ms: int
    """When the job was queued again."""
    again_ms: int
    """When the job was claimed again."""


@dataclass
class Verdict:
    """The counts of one run, and its faults."""

    enqueued: int = 0
    """Jobs that were asked for or are stored."""
    ran: int = 0
    """Handlers that were started."""
    finished: int = 0
    """Jobs that succeeded."""
    dead: int = 0
    repeated: int = 0
    """Starts after the first of an at-least-once job, each under its own claim: allowed."""
    expected: int = 0
    """Nominal times."""
    outcomes: Counter[tuple[Delivery, str, int]] = field(default_factory=Counter)
    """Nominal times that the ledger covers, by delivery, state and number of jobs."""
    lost: int = 0
    """Jobs that are missing, or succeeded though no handler ended; nominal times that nothing
    covers, or that have run without a job."""
    doubled: int = 0
    """Successes after the first of a job; starts after the first of a claim, or of an at-most-once
    job; jobs after the first, and rows of the ledger after the first, of a nominal time."""
    unfinished: int = 0
    """Jobs that have not ended."""
    unaccounted: int = 0
    """Nominal times whose state in the ledger is none of those that are expected."""
    undeclared: int = 0
    """Jobs stored with another delivery than the code declares."""
    deadlocks: int = 0
    """That PostgreSQL found and broke."""
    faults: list[str] = field(default_factory=list)
    completed_at_ms: list[int] = field(default_factory=list)
    """When jobs succeeded, by the clock of the database."""
    interrupted: list[Interruption] = field(default_factory=list)
    repeats: dict[str, int] = field(default_factory=dict)
    """How often jobs were started, where more than once."""

    @property
    def is_good(self) -> bool:
        """Return whether nothing is wrong."""
        counts = (self.lost, self.doubled, self.unfinished, self.unaccounted)
        return not (any(counts) or self.undeclared or self.faults)

    def lines(self, name: str) -> Iterator[str]:
        """Return the lines under a table: jobs that ran repeatedly, then what is wrong."""
        if self.repeats:
            listed = [f"{job_id} {starts}" for job_id, starts in self.repeats.items()]
            more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
            yield f"repeated: {name}: {', '.join(listed[:LISTED])}{more}"
        for fault in self.faults[:LISTED]:
            yield f"wrong: {name}: {fault}"


def judge(database: Database, expected: Expected, record: Record) -> Verdict:
    """Read everything and decide."""
    verdict = Verdict(deadlocks=database.deadlocks())
    definitions = {str(each.id): each.definition for each in expected.schedules}
    asked, runs = set[str](expected.jobs), record.runs()
    stored: set[str] = set()
    times: Counter[tuple[str, int]] = Counter()
    for job, events in database.jobs():
        stored.add(job.id)
        definition = None
        if job.schedule_id is not None and job.nominal_ms is not None:
            times[job.schedule_id, job.nominal_ms] += 1
            definition = definitions.get(job.schedule_id)
        if definition is None and job.id not in asked:
            verdict.faults.append(f"{job.id}: nobody asked for it")
        declared = declared_delivery(job.action, definition)
        _judge_job(verdict, job, events, declared)
        _judge_starts(verdict, job.id, events, runs.get(job.id, Runs()), declared)
    verdict.enqueued = len(asked | stored)
    verdict.lost += len(asked - stored)
    verdict.faults += [f"{job_id}: ran, but is not stored" for job_id in runs.keys() - stored]
    _judge_schedules(verdict, database.ledger(), times, expected)
    if expected.dead is not None and verdict.dead != expected.dead:
        verdict.faults.append(f"{verdict.dead} jobs are dead; planted: {expected.dead}")
    if verdict.deadlocks and not expected.can_deadlock:
        verdict.faults.append(f"{verdict.deadlocks} deadlocks")
    if not database.is_at_rest():
        verdict.faults.append("not all came to rest")
    return verdict


def declared_delivery(action: str, definition: Definition | None) -> Delivery:
    """Return what the code says: the schedule, if it says anything, else the action."""
    if definition is not None and definition.policies.delivery is not None:
        return definition.policies.delivery
    return work.actions[action.rpartition(".")[2]].delivery


def fault_of_history(job: Job, events: Sequence[JobEvent]) -> str | None:
    """Return what is wrong with the events of a job; None: nothing."""
    states = [event.state for event in events]
    numbers = [event.seq for event in events]
    if not numbers or numbers != list(range(1, job.events + 1)):
        return f"numbers {numbers} of {job.events} events"
    if states[0] not in (JobState.QUEUED, JobState.SCHEDULED) or states[-1] is not job.state:
        return f"begins {states[0]}, ends {states[-1]}, is {job.state}"
    illegal = [f"{a} -> {b}" for a, b in pairwise(states) if not may_go(a, b)]
    return f"went {', '.join(illegal)}" if illegal else None


def _judge_job(verdict: Verdict, job: Job, events: Sequence[JobEvent], declared: Delivery) -> None:
    succeeded = [event.at_ms for event in events if event.state is JobState.SUCCEEDED]
    verdict.completed_at_ms += succeeded
    verdict.interrupted += _interruptions(events)
    verdict.finished += job.state is JobState.SUCCEEDED
    verdict.dead += job.state is JobState.DEAD
    verdict.unfinished += job.state not in FINAL
    verdict.doubled += max(0, len(succeeded) - 1)
    # A success stored over another leaves one event, but the row counts both.
    verdict.doubled += job.state is JobState.SUCCEEDED and job.events > len(events)
    if fault := fault_of_history(job, events):
        verdict.faults.append(f"{job.id}: {fault}")
    # What the code declares, and not what is stored: a declaration may have been ignored.
    is_once = declared == "at_most_once"
    if job.delivery != declared or (job.max_attempts == 1) != is_once:
        verdict.undeclared += 1
        verdict.faults.append(f"{job.id}: {job.action} is declared {declared}, stored otherwise")


def _judge_starts(
    verdict: Verdict, job_id: str, events: Sequence[JobEvent], runs: Runs, declared: Delivery
) -> None:
    starts, claims = runs.starts.total(), len(runs.starts)
    verdict.ran += starts
    verdict.lost += not runs.ends and any(each.state is JobState.SUCCEEDED for each in events)
    verdict.doubled += starts - claims
    if starts > 1:
        verdict.repeats[job_id] = starts
    if declared == "at_most_once":
        verdict.doubled += max(0, claims - 1)
    else:
        verdict.repeated += max(0, claims - 1)
    given = {event.attempt for event in events if event.state is JobState.PROCESSING}
    if unknown := runs.starts.keys() - given:
        verdict.faults.append(f"{job_id}: ran under fences {unknown} that no claim gave")


def _interruptions(events: Sequence[JobEvent]) -> list[Interruption]:
    """Return lost claims of a job that was claimed again."""
    claims = [event for event in events if event.state is JobState.PROCESSING]
    lost = {event.attempt: event.at_ms for event in events if event.ended_as == "lost"}
    return [
        Interruption(one.actor or "", one.at_ms, lost[one.attempt], next_.at_ms)
        for one, next_ in pairwise(claims)
        if one.attempt in lost
    ]


def _judge_schedules(
    verdict: Verdict,
    ledger: Mapping[str, Sequence[Entry]],
    jobs: Counter[tuple[str, int]],
    expected: Expected,
) -> None:
    """Compare ledger and jobs with what the triggers alone say."""
    for schedule in expected.schedules:
        for at_ms in _nominal_times(schedule):
            covers = [
                entry.state
                for entry in ledger.get(schedule.id, ())
                if entry.first_ms <= at_ms <= entry.last_ms
            ]
            made = jobs.pop((schedule.id, at_ms), 0)
            verdict.expected += 1
            verdict.doubled += max(0, len(covers) - 1) + max(0, made - 1)
            if not covers:
                verdict.lost += 1
                continue
            state = OccurrenceState(covers[0])
            definition = schedule.definition
            delivery = declared_delivery(definition.action, definition)
            verdict.outcomes[delivery, state.value, made] += 1
            if state not in expected.states:
                verdict.unaccounted += 1
                verdict.faults.append(f"{schedule.id} is {state} at {at_ms}")
            verdict.lost += not made and _needs_job(definition, delivery, state)
    verdict.faults += [f"{each} has a job at {at_ms}: not a time of it" for each, at_ms in jobs]


def _nominal_times(schedule: Schedule) -> Iterator[int]:
    trigger = schedule.definition.trigger
    assert trigger.end_at is not None
    end_ms, found = to_ms(trigger.end_at), trigger.next_after_ms(schedule.created_at_ms)
    while found is not None and found <= end_ms:
        yield found
        found = trigger.next_after_ms(found)


def _needs_job(definition: Definition, delivery: Delivery, state: OccurrenceState) -> bool:
    """Return whether a nominal time in this state has a job.

    A post that is made at most once may have failed without one.
    """
    is_posted_once = definition.hand_over == "http" and delivery == "at_most_once"
    return state in RAN and not (is_posted_once and state is OccurrenceState.FAILED)
