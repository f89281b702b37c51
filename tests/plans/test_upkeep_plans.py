"""Plans of upkeep: a step reads the rows of its page by key, however many rows are stored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from duly import cron
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.model.upkeep import LedgerRetention
from duly.stores.sql.store import SqlStore
from tests.plans.explained import BACKENDS, Verb, examined, filled, plans_of, scans

SCHEDULES = 4_000
ROWS = 40_000
LIMIT = 50
ROWS_MAX = 5 * LIMIT
"""Rows that one node of a plan may read: a page, and the related rows of each row."""
OLD_MS = 1_600_000_000_000

# Columns that have no default, filled from the number of the row.
FILL = {
    "occurrences": (
        (
            "schedule_id, nominal_ms, flow, scope, name, run_at_ms, state, missed, row_version, "
            "position, at_ms, until_ms, times"
        ),
        (
            "'sch_' || {pad}, {old} + i * 1000, 'mail', 'user:' || (i % {schedules}), 'a', "
            "{old} + i * 1000, 'succeeded', 0, 0, 0, {old}, {old} + i * 1000, 1"
        ),
    ),
    "schedule_events": (
        "schedule_id, kind, at_ms, actor, detail",
        "'sch_' || {pad}, 'changed', {old} + i, 'user:' || (i % {schedules}), '{{}}'",
    ),
    "job_events": (
        "job_id, seq, at_ms, state, attempt",
        "'job_' || i, 1, {old}, 'queued', 0",
    ),
    "idempotency": (
        "workspace, action, idempotency_key, job_id, input_digest, expires_at_ms",
        "'user:' || (i % {schedules}), 'mail.send', 'k' || i, 'job_' || i, '', 4000000000000",
    ),
    "resources": (
        "collection, scope, name, id, version, body, created_at_ms, updated_at_ms",
        "'notes', 'user:' || (i % {schedules}), 'n' || i, 'doc_' || i, 1, '{{}}', {old}, {old}",
    ),
    "resource_index": (
        "collection, attribute, value, scope, name",
        "'notes', 'tag', 'v' || i, 'user:' || (i % {schedules}), 'n' || i",
    ),
}


async def fill(store: SqlStore) -> None:
    zoned = Definition(cron("0 9 * * *", tz="Europe/Berlin"), "send")
    writes = [
        ScheduleWrite(ScheduleKey("mail", f"user:{n}", f"s{n}"), ScheduleId(f"sch_{n:04}"), zoned)
        for n in range(SCHEDULES)
    ]
    await store.put_schedules(writes)
    is_file = store._engine.dialect.name == "sqlite"
    pad = (
        f"printf('%04d', i % {SCHEDULES})" if is_file else f"lpad((i % {SCHEDULES})::text, 4, '0')"
    )
    with store._engine.begin() as connection:
        for table, (columns, values) in FILL.items():
            filled = values.format(pad=pad, old=OLD_MS, schedules=SCHEDULES)
            statement = (
                f"INSERT INTO duly_{table} ({columns}) WITH RECURSIVE n(i) AS "  # noqa: S608
                f"(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) SELECT {filled} FROM n"
            )
            connection.execute(text(statement.replace(":", r"\:")))


@pytest.fixture(scope="module", params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from filled(request, tmp_path_factory, fill)


async def every_kind(store: SqlStore) -> None:
    """Run two steps of each kind; a kind that is done in one step ends there."""
    for kind in (
        "schedules",
        "index_rows",
        "documents",
        "jobs",
        "keys",
        "occurrences",
        "events",
        "job_events",
        "tokens",
    ):
        step = await store.erase("user:7", cursor=f"{kind}:[]", limit=LIMIT)
        if step.cursor is not None:
            await store.erase("user:7", cursor=step.cursor, limit=LIMIT)


async def both_halves(store: SqlStore) -> None:
    kept = LedgerRetention()
    for cursor in (None, 'ledger:["sch_0100"]', "events:[20000]"):
        await store.prune_ledger(kept, LIMIT, cursor)


async def finished(store: SqlStore) -> None:
    for cursor in (None, "finished:"):
        await store.prune_schedules(LedgerRetention(), LIMIT, cursor)


VERBS: dict[str, Verb] = {
    "erase": every_kind,
    "prune_ledger": both_halves,
    "prune_schedules": finished,
    "recompute_zones": lambda store: store.recompute_zones("2031a", limit=LIMIT, cursor="rows:9"),
}
SMALL = ("duly_schema", "duly_queue_tokens", "duly_jobs", "duly_running")
"""Tables without rows here, which any plan may scan."""


@pytest.mark.parametrize("name", VERBS)
def test_steps_read_their_page(url: str, name: str) -> None:
    plans = plans_of(url, VERBS[name])
    assert len(plans) >= 2
    for plan in plans:
        assert scans(plan, *SMALL) == [], plan
        assert examined(plan) <= ROWS_MAX, plan
