"""Five users in five zones with a weekly digest each: create, pause, delete, inspect, claim.

Run it: python examples/digests/digests.py [URL]. Without a URL it works on a temporary SQLite file.
The clock is frozen, so the output is the same every day.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from datetime import UTC, datetime

from duly import weekly
from duly.flows.collections import ScheduleCollection
from duly.model.scopes import user
from duly.stores import open_store
from duly.stores.port import Store
from duly.testing.clock import ManualClock

SUNDAY = datetime(2026, 3, 29, 12, tzinfo=UTC)
MONDAY_NOON = datetime(2026, 3, 30, 12, tzinfo=UTC)
PEOPLE = {
    "ada": "Europe/London",
    "bjarne": "Europe/Copenhagen",
    "grace": "America/New_York",
    "ken": "America/Los_Angeles",
    "yukihiro": "Asia/Tokyo",
}


async def show_index(store: Store) -> None:
    for row in await store.list_rows(flow="digests"):
        at = datetime.fromtimestamp(row.run_at_ms / 1000, UTC)
        print(f"  {at:%a %H:%M} UTC  {row.scope:<14} {row.name}  ({row.zone})")


async def tell(store: Store) -> None:
    schedules = ScheduleCollection(store, "digests")
    for person, zone in PEOPLE.items():
        monday_at_nine = weekly({"mon": "09:00"}, tz=zone)
        await schedules.of(user(person)).create("weekly", monday_at_nine, action="send_digest")
    print("every Monday at nine, their time:")
    await show_index(store)

    await schedules.of(user("grace")).pause("weekly", note="on holiday")
    await schedules.of(user("ken")).delete("weekly")
    print("grace paused hers, ken deleted his:")
    await show_index(store)

    print("due on Monday at noon UTC:")
    for fired in await store.claim_due(round(MONDAY_NOON.timestamp() * 1000)):
        at = datetime.fromtimestamp(fired.nominal_ms / 1000, UTC)
        print(f"  {fired.scope:<14} fired for {at:%a %H:%M} UTC, {fired.missed} missed")
    print("and the week after:")
    await show_index(store)


async def main(url: str) -> None:
    store = open_store(url, clock=ManualClock(SUNDAY))
    try:
        await tell(store)
    finally:
        await store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/digests.db"))
