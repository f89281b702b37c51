"""reconcile() keeps an edit that commits between its read and its lock."""

import asyncio
from collections.abc import Sequence
from threading import Thread
from typing import Any

import pytest

from duly.engine.kinds import ROW
from duly.engine.transaction import Key
from duly.model.schedules import Definition
from duly.stores import open_store
from duly.stores.port import Store
from duly.stores.sql.source import SqlSource
from duly.testing import ManualClock
from duly.testing.conformance.planning.samples import plan
from duly.testing.conformance.samples import HOUR_MS, a_definition, a_key, a_write, only_row, put
from duly.testing.conformance.suite import START
from duly.triggers import cron

HALF_PAST = cron("30 * * * *")
_load = SqlSource.load


async def write(store: Store, definition: Definition) -> None:
    await put(store, a_write(definition=definition))


def edit_at_once(url: str, definition: Definition) -> None:
    """Edit the schedule on another connection while the caller waits."""

    async def edit() -> None:
        store = open_store(url, clock=ManualClock(START))
        await write(store, definition)
        await store.close()

    thread = Thread(target=lambda: asyncio.run(edit()))
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "edited",
    [a_definition(HALF_PAST, max_runs=5), a_definition(max_runs=5, input="new")],
    ids=["another rule", "runs given back"],
)
def test_edit_between_read_and_lock_is_kept(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, edited: Definition
) -> None:
    def edited_first(source: SqlSource, kind: Any, keys: Sequence[Key], *, hold: bool) -> Any:
        if hold and kind is ROW:
            monkeypatch.setattr(SqlSource, "load", _load)
            edit_at_once(postgres_url, edited)
        return _load(source, kind, keys, hold=hold)

    async def race() -> None:
        store = open_store(postgres_url, clock=ManualClock(START))
        await write(store, a_definition(max_runs=5))
        await plan(store, look_ahead_ms=2 * HOUR_MS)
        monkeypatch.setattr(SqlSource, "load", edited_first)
        await store.reconcile()
        row, schedule = await only_row(store), await store.get_schedule(a_key())
        assert schedule is not None
        assert schedule.definition.is_same(edited)
        assert (schedule.runs_had, row.runs_left) == (0, 5)
        assert ("30 * * * *" in row.trigger) is (edited.trigger == HALF_PAST)
        await store.close()

    asyncio.run(race())
