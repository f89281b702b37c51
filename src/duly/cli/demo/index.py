"""`duly demo`: schedules of several users on a SQLite file, and claims on them."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from duly.flows.collections import ScheduleCollection
from duly.model.scopes import user
from duly.stores import open_store
from duly.stores.port import Store
from duly.triggers import weekly

PEOPLE = {
    "ada": "Europe/London",
    "bjarne": "Europe/Copenhagen",
    "grace": "America/New_York",
    "ken": "America/Los_Angeles",
    "yukihiro": "Asia/Tokyo",
}
WEEK_MS = 7 * 86_400_000


def show_index(console: Console) -> None:
    """Create, pause, delete and claim schedules in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_tell(console, f"sqlite:///{folder}/demo.db"))


async def _tell(console: Console, url: str) -> None:
    store = open_store(url)
    try:
        schedules = ScheduleCollection(store, "digests")
        for person, zone in PEOPLE.items():
            nine = weekly({"mon": "09:00"}, tz=zone)
            await schedules.of(user(person)).create("weekly", nine, action="send_digest")
        await schedules.of(user("grace")).pause("weekly", note="on holiday")
        await schedules.of(user("ken")).delete("weekly")
        console.print("five users, Monday at nine, their time; grace paused, ken deleted:")
        await _print_rows(console, store)
        fired = await store.claim_due(await store.now_ms() + WEEK_MS, claim_id="demo")
        again = await store.claim_due(await store.now_ms() + WEEK_MS, claim_id="demo")
        console.print(f"a week later one claim takes {len(fired)} of them and advances them;")
        console.print(f"the same claim asked again gives the same answer: {again == fired}")
        await _print_rows(console, store)
        health = await store.index_health()
        console.print(f"active {health.active}, rows {health.rows}, missing {health.missing}")
    finally:
        await store.close()


async def _print_rows(console: Console, store: Store) -> None:
    table = Table("next run (UTC)", "owner", "name", "zone", box=None, padding=(0, 2))
    for row in await store.list_rows():
        at = datetime.fromtimestamp(row.run_at_ms / 1000, UTC)
        table.add_row(f"{at:%a %Y-%m-%d %H:%M}", row.scope, row.name, row.zone)
    console.print(table)
