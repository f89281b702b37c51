"""What a soak must have left behind: every nominal time covered once, nothing doubled or lost."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from duly.model.schedules import Definition, Schedule
from duly.triggers.instants import to_ms
from tests.system.soak.application import flow

OPEN = ("scheduled", "queued", "processing", "retrying")


@dataclass
class Verdict:
    """Counts of one soak; `lost` and `doubled` must be 0."""

    expected: int = 0
    states: Counter[str] = field(default_factory=Counter)
    """Nominal times by what became of them."""
    lost: int = 0
    """Times that nothing covers, and jobs that never ended."""
    doubled: int = 0
    """Times covered twice, with two jobs, or at-most-once jobs that began twice."""
    again: int = 0
    """At-least-once jobs that began again after a kill: allowed, and counted."""
    undeclared: int = 0
    """Jobs stored with another delivery than the code declares, and starts of a job that show the
    same attempt number."""
    deadlocks: int = 0
    """That PostgreSQL found and broke; the order of locks leaves none."""


class Books:
    """The tables behind the store, read for the verdict."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))

    def rows(self, statement: str) -> Sequence[Any]:
        """All rows of a question."""
        with self._engine.connect() as connection:
            return connection.execute(text(statement)).all()

    def deadlocks(self) -> int:
        """Return how many deadlocks the server has broken in this database."""
        if self._engine.dialect.name == "sqlite":
            return 0
        found = self.rows(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        return int(found[0][0])

    def is_quiet(self) -> bool:
        """No schedule has a next time, and no job is left."""
        left = self.rows(
            "SELECT (SELECT count(*) FROM duly_schedule_index), (SELECT count(*) FROM duly_jobs "
            "WHERE state IN ('scheduled', 'queued', 'processing', 'retrying'))"
        )
        return tuple(left[0]) == (0, 0)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


def judge(books: Books, schedules: Sequence[Schedule], journal: Path) -> Verdict:
    """Compare ledger, jobs and journal with what the triggers alone say."""
    verdict = Verdict()
    covering: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for row in books.rows("SELECT schedule_id, nominal_ms, until_ms, state FROM duly_occurrences"):
        covering[row[0]].append((row[1], row[1] if row[2] is None else row[2], row[3]))
    for schedule in schedules:
        _judge_times(verdict, schedule, covering[schedule.id])
    pairs = Counter(
        (row[0], row[1])
        for row in books.rows(
            "SELECT schedule_id, nominal_ms FROM duly_jobs WHERE schedule_id IS NOT NULL"
        )
    )
    verdict.doubled += sum(count - 1 for count in pairs.values())
    verdict.lost += sum(row[0] in OPEN for row in books.rows("SELECT state FROM duly_jobs"))
    _judge_starts(verdict, books, schedules, journal)
    verdict.deadlocks = books.deadlocks()
    return verdict


def declared_delivery(definition: Definition) -> str:
    """Return what the code says: the schedule where it says anything, else the action."""
    return definition.policies.delivery or flow.actions[definition.action].delivery


def _judge_starts(
    verdict: Verdict, books: Books, schedules: Sequence[Schedule], journal: Path
) -> None:
    """Compare stored jobs and started handlers with the declarations, not with each other."""
    declared = {each.id: declared_delivery(each.definition) for each in schedules}
    rows = books.rows("SELECT id, schedule_id, max_attempts FROM duly_jobs")
    delivery = {row[0]: declared[row[1]] for row in rows}
    for row in rows:
        is_stored_so = (row[2] == 1) == (delivery[row[0]] == "at_most_once")
        verdict.undeclared += not is_stored_so
    starts = [tuple(line.split()) for line in journal.read_text().splitlines()]
    verdict.undeclared += len(starts) - len(set(starts))
    for job_id, count in Counter(start[0] for start in starts).items():
        if delivery[job_id] == "at_most_once":
            verdict.doubled += count - 1
        else:
            verdict.again += count - 1


def _judge_times(verdict: Verdict, schedule: Schedule, rows: list[tuple[int, int, str]]) -> None:
    trigger = schedule.definition.trigger
    assert trigger.end_at is not None
    end_ms, found = to_ms(trigger.end_at), trigger.next_after_ms(schedule.created_at_ms)
    while found is not None and found <= end_ms:
        verdict.expected += 1
        covers = [state for first, last, state in rows if first <= found <= last]
        verdict.lost += not covers
        verdict.doubled += len(covers) > 1
        verdict.states.update(covers[:1])
        found = trigger.next_after_ms(found)
