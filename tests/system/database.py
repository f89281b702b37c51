"""The database of a run: opened as a store, filled with schedules, and read for the audit.

The audit reads tables, not the store's own answers; only rows are decoded by its code.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import NullPool, Row, create_engine, text

from duly.clock import Clock
from duly.engine.ids import new_id
from duly.model.events import JobEvent
from duly.model.jobs import Job
from duly.model.plans import PlanSettings
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Definition, Limits, Schedule, ScheduleId
from duly.model.scopes import Scope
from duly.stores import open_store
from duly.stores.port import Store
from duly.stores.sql.rows.job_events import attempt_events, event_of
from duly.stores.sql.rows.jobs import job_of
from tests.system.application import work

BATCH = 5_000
"""Schedules stored, or rows read, at once."""


class Entry(NamedTuple):
    """A row of the ledger: nominal times of one schedule, and what became of them."""

    first_ms: int
    last_ms: int
    state: str


def open_database(url: str, *, clock: Clock | None = None, **options: Any) -> Store:
    """Open a store that plans nothing: processes do, which know what the application declares."""
    return open_store(url, clock=clock, planning=PlanSettings(look_ahead_ms=0), **options)


async def store_schedules(
    url: str, owner: Scope, definitions: Sequence[Definition], clock: Clock | None = None
) -> list[Schedule]:
    """Store new schedules of an owner, and return them as they are stored."""
    limits = Limits(schedules=len(definitions))
    writes = [
        ScheduleWrite(
            ScheduleKey(work.name, str(owner), f"{number:06}"),
            ScheduleId(new_id("sch_")),
            definition,
            limits,
        )
        for number, definition in enumerate(definitions)
    ]
    found: list[Schedule] = []
    store = open_database(url, clock=clock)
    for first in range(0, len(writes), BATCH):
        for answer in await store.put_schedules(writes[first : first + BATCH]):
            assert isinstance(answer, ScheduleWritten)
            found.append(answer.schedule)
    await store.close()
    return found


class Database:
    """The tables behind a store."""

    def __init__(self, url: str) -> None:
        # No connection is kept: servers are restarted, and their connections counted and cut.
        address = url.replace("postgresql:", "postgresql+psycopg:")
        self._engine = create_engine(address, poolclass=NullPool)

    def change(self, statement: str, **values: object) -> None:
        """Change rows of a table, as a planted bug would; there must be some."""
        with self._engine.begin() as connection:
            assert connection.execute(text(statement), values).rowcount > 0

    def numbers(self, statement: str) -> tuple[int, ...]:
        """Return the only row of a query that counts."""
        with self._engine.connect() as connection:
            return tuple(connection.execute(text(statement)).one())

    def is_at_rest(self) -> bool:
        """Return whether no schedule has a next time, none is dispatched, and no job is left."""
        left = self.numbers(
            "SELECT (SELECT count(*) FROM duly_schedule_index), "
            "(SELECT count(*) FROM duly_occurrences WHERE state = 'dispatching'), "
            "(SELECT count(*) FROM duly_jobs "
            "WHERE state IN ('scheduled', 'queued', 'processing', 'retrying'))"
        )
        return not any(left)

    def deadlocks(self) -> int:
        """Return how many deadlocks the server has broken in this database."""
        if self._engine.dialect.name == "sqlite":
            return 0
        (found,) = self.numbers(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        return found

    def ledger(self) -> dict[str, list[Entry]]:
        """Return the ledger by schedule."""
        found: dict[str, list[Entry]] = defaultdict(list)
        for row in self._rows(
            "SELECT schedule_id, nominal_ms, until_ms, state FROM duly_occurrences"
        ):
            last_ms = row.nominal_ms if row.until_ms is None else row.until_ms
            found[row.schedule_id].append(Entry(row.nominal_ms, last_ms, row.state))
        return found

    def jobs(self) -> Iterator[tuple[Job, list[JobEvent]]]:
        """Return all jobs with their events."""
        events: dict[str, list[JobEvent]] = defaultdict(list)
        for row in self._rows("SELECT * FROM duly_job_events ORDER BY job_id, seq"):
            events[row.job_id].append(event_of(row))
        for row in self._rows("SELECT * FROM duly_jobs"):
            found = events.pop(row.id, [])
            newest = found[-1].seq if found else 0
            # Those of a running or succeeded attempt are in the row of the job.
            yield job_of(row), found + [each for each in attempt_events(row) if each.seq > newest]

    def _rows(self, statement: str) -> Iterator[Row[Any]]:
        with self._engine.connect() as connection:
            yield from connection.execution_options(yield_per=BATCH).execute(text(statement))
