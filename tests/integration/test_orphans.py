"""Rows whose schedules were deleted by hand: reconcile() removes only these."""

import asyncio
import sqlite3
from pathlib import Path

from duly import open_store
from duly.stores import MemoryStore
from duly.stores.port import Store
from duly.testing.conformance.samples import a_row, a_write, put


async def _store_three(store: Store) -> None:
    await put(store, a_write("kept"), a_write("lost"))
    await store.upsert(a_row("own", hand_over="external"))


async def _check(store: Store) -> None:
    report = await store.reconcile()
    assert (report.checked, report.removed) == (1, 1)
    assert {row.name for row in await store.list_rows()} == {"kept", "own"}


def test_orphans_in_memory() -> None:
    async def trial() -> None:
        store = MemoryStore()
        await _store_three(store)
        documents = store._tables.documents
        del documents[next(key for key in documents if key[2].endswith("/lost"))]
        await _check(store)

    asyncio.run(trial())


def test_orphans_in_sqlite(tmp_path: Path) -> None:
    async def trial() -> None:
        store = open_store(f"sqlite:///{tmp_path}/work.db")
        await _store_three(store)
        with sqlite3.connect(tmp_path / "work.db") as connection:
            gone = connection.execute("DELETE FROM duly_resources WHERE id = 'id-lost'").rowcount
        connection.close()
        assert gone == 1
        await _check(store)
        await store.close()

    asyncio.run(trial())
