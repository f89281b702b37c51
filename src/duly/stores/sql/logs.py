"""The logs of the engine's port: events of schedules and jobs, and the audit log.

Entries are read by number or by owner; upkeep removes them or erases a name from them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Row, Table, bindparam, update

from duly.engine.kinds import AUDIT, JOB_EVENTS, SCHEDULE_EVENTS
from duly.engine.transaction import EVERY, Key, Log
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import ScheduleId
from duly.model.summaries import AuditEntry
from duly.stores.sql.bulk import chunks, delete_keys
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.rows.job_events import event_of

Edits = Mapping[Key, Any]
"""New contents of entries by number; None: remove the entry."""


class LogTable(NamedTuple):
    """A log stored in one table."""

    table: str
    number: tuple[str, ...]
    read: Callable[[Row[Any]], Any]
    edited: Callable[[Any], dict[str, str | None]]
    """Return the columns that upkeep may rewrite."""


def schedule_event_of(row: Row[Any]) -> ScheduleEvent:
    """Return the schedule event stored in a row."""
    detail = json.loads(row.detail)
    return ScheduleEvent(
        ScheduleId(row.schedule_id), row.kind, row.at_ms, row.actor, detail, row.seq
    )


def audit_entry_of(row: Row[Any]) -> AuditEntry:
    """Return the audit entry stored in a row."""
    return AuditEntry(
        row.actor, row.action, row.target, row.outcome, row.detail, row.seq, row.at_ms
    )


LOGS: dict[Log[Any], LogTable] = {
    SCHEDULE_EVENTS: LogTable(
        "schedule_events", ("seq",), schedule_event_of, lambda fact: {"actor": fact.by}
    ),
    JOB_EVENTS: LogTable(
        "job_events", ("job_id", "seq"), event_of, lambda fact: {"actor": fact.actor}
    ),
    AUDIT: LogTable(
        "audit",
        ("seq",),
        audit_entry_of,
        lambda fact: {"actor": fact.by, "target": fact.target, "detail": fact.detail},
    ),
}


def walk(db: Db, log: Log[Any], after: Key, limit: int) -> list[Any]:
    """Return the first entries after a number."""
    own = LOGS[log]
    number = ", ".join(own.number)
    beginning: Key = ("", 0)[-len(own.number) :]
    given = dict(zip(own.number, after or beginning, strict=True))
    found = db.run(
        f"SELECT * FROM {{p}}{own.table} WHERE {db.following(*own.number, is_strict=True)} "
        f"ORDER BY {number} LIMIT :limit",
        limit=limit,
        **given,
    )
    return [own.read(row) for row in found]


def histories(db: Db, owners: Sequence[str], limit: int) -> dict[str, list[ScheduleEvent]]:
    """Return the newest events of each schedule that has any, oldest first."""
    found: dict[str, list[ScheduleEvent]] = defaultdict(list)
    for ids in chunks(sorted(set(owners))):
        # Look up the first number to read, so that a long history is not read in full.
        since = _beginnings(db, ids, limit) if limit < EVERY else {}
        short = [each for each in ids if each not in since]
        read = [db.run(_SHORT, ids=short)] if short else []
        read += [db.run(_LONG, id=each, since=seq) for each, seq in since.items()]
        for row in chain.from_iterable(read):
            found[row.schedule_id].append(schedule_event_of(row))
    return found


_SHORT = "SELECT * FROM {p}schedule_events WHERE schedule_id IN :ids ORDER BY seq"
_LONG = "SELECT * FROM {p}schedule_events WHERE schedule_id = :id AND seq >= :since ORDER BY seq"


def _beginnings(db: Db, ids: Sequence[str], limit: int) -> dict[str, int]:
    """Return the first event number to read for schedules with at least `limit` events."""
    found = db.run(
        "SELECT e.value, (SELECT n.seq FROM {p}schedule_events n WHERE n.schedule_id = e.value "
        "ORDER BY n.seq DESC LIMIT 1 OFFSET :passed) "
        "FROM (SELECT CAST(:ids AS {text}) AS ids) AS m {each_of_ids}",
        ids=json.dumps(list(ids)),
        passed=limit - 1,
    )
    return {own: seq for own, seq in tuples(found) if seq is not None}


def edit(db: Db, edited: Mapping[tuple[Log[Any], Key], Any]) -> None:
    """Remove log entries and rewrite others."""
    for log, own in LOGS.items():
        facts = {number: fact for (each, number), fact in edited.items() if each is log}
        if facts:
            table = getattr(db.tables, own.table)
            _remove(db, table, sorted(each for each, fact in facts.items() if fact is None))
            _rewrite(db, table, own, {k: fact for k, fact in facts.items() if fact is not None})


def _remove(db: Db, table: Table, numbers: Sequence[Key]) -> None:
    """Remove entries keyed by `seq` alone; events of a job are removed with the job."""
    for chunk in chunks(numbers):
        among = table.c.seq.in_([seq for (seq,) in chunk])
        delete_keys(db, table, ("seq",), chunk, among)


def _rewrite(db: Db, table: Table, own: LogTable, facts: Edits) -> None:
    if not facts:
        return
    columns = own.edited(next(iter(facts.values())))
    statement = (
        update(table)
        .where(*(table.c[name] == bindparam(f"key_{name}") for name in own.number))
        .values({name: bindparam(f"new_{name}") for name in columns})
    )
    given: list[dict[str, Any]] = [
        {f"key_{name}": part for name, part in zip(own.number, number, strict=True)}
        | {f"new_{name}": value for name, value in own.edited(fact).items()}
        for number, fact in sorted(facts.items())
    ]
    db.connection.execute(statement, given)
