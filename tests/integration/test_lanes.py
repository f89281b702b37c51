"""Claims of several flows while another claim holds the first rows of each."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from sqlalchemy import text

from duly import cron
from duly.model.index_rows import trigger_text
from duly.stores import open_store
from duly.stores.sql.rows.index_rows import insert
from duly.stores.sql.store import SqlStore
from tests.rows import NOON_MS, rows

DAILY = trigger_text(cron("0 12 * * *", tz="Europe/Berlin"))
LOCK = text(
    "SELECT row_id FROM duly_schedule_index WHERE flow = :flow "
    "ORDER BY run_at_ms, priority DESC, row_id LIMIT 2 FOR UPDATE"
)


def test_claim_takes_the_rows_after_locked_ones(postgres_url: str) -> None:
    async def check() -> list[str]:
        store = cast(SqlStore, open_store(postgres_url))
        few = [
            replace(row, flow=flow)
            for flow in ("one", "two")
            for row in rows(4, DAILY, prefix=flow)
        ]
        await store._run(lambda db: insert(db, few))
        with store._engine.begin() as other:
            for flow in ("one", "two"):
                other.execute(LOCK, {"flow": flow})
            claimed = await store.claim_due(NOON_MS, limit=4)
        await store.close()
        return [each.schedule_id for each in claimed]

    # The first four in order are those of flow "one", two of which are held.
    ours = ["one_00000002", "one_00000003", "two_00000002", "two_00000003"]
    assert asyncio.run(check()) == ours


def test_claim_continues_when_a_whole_flow_is_locked(postgres_url: str) -> None:
    async def check() -> list[str]:
        store = cast(SqlStore, open_store(postgres_url))
        few = [
            *(replace(row, flow="one") for row in rows(2, DAILY, prefix="one")),
            *(replace(row, flow="two") for row in rows(2, DAILY, NOON_MS - 1, prefix="two")),
        ]
        await store._run(lambda db: insert(db, few))
        with store._engine.begin() as other:
            other.execute(LOCK, {"flow": "two"})
            claimed = await store.claim_due(NOON_MS, limit=2)
        await store.close()
        return [each.schedule_id for each in claimed]

    assert asyncio.run(check()) == ["one_00000000", "one_00000001"]
