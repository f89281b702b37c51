"""An index implemented by the application: its collection, and ticks that claim from it."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from duly.dispatch import TickOptions
from duly.dispatch.tick.tick import Tick, TickPlace, TickReport
from duly.errors import InvalidInput
from duly.flows.collections import NewSchedule, ScheduleCollection, ScopedSchedules
from duly.flows.flow import Flow
from duly.model.scopes import user
from duly.stores import MemoryStore
from duly.stores.port import ScheduleIndex
from duly.testing import ManualClock
from duly.triggers import once
from tests.conformance.test_own_index import index_of_the_guide
from tests.integration.http.conftest import Serve
from tests.integration.http.site import BEARER, NOW, SECRET
from tests.integration.http.test_tick import endpoint


class IndexedElsewhere:
    """Schedules of user u_1 in a memory store, with their rows in an index outside of it."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.store = MemoryStore(self.clock)
        self.index = index_of_the_guide()(self.clock)
        self.collection = ScheduleCollection(self.store, "mail", index=self.index)

    @property
    def mine(self) -> ScopedSchedules:
        return self.collection.of(user("u_1"))

    @property
    def names(self) -> list[str]:
        """Return the names that have a row in the index; the store's own index must be empty."""
        assert asyncio.run(self.store.list_rows()) == []
        return sorted(key.name for key in self.index.rows)

    def tick(self, index: ScheduleIndex, port: int, **options: Any) -> TickReport:
        async def run() -> TickReport:
            place = TickPlace(f"http://127.0.0.1:{port}", SECRET, ("news", "mail"))
            tick = Tick(index, place, TickOptions(**options), clock=self.clock)
            try:
                return await tick.run_once()
            finally:
                await tick.close()

        return asyncio.run(run())


def test_rows_follow_the_schedules() -> None:
    kept, run = IndexedElsewhere(), asyncio.run
    run(kept.mine.create("a", "0 9 * * *", action="send"))
    run(kept.mine.create("b", "0 9 * * *", action="send", enabled=False))
    run(kept.mine.create_many([NewSchedule("c", "0 9 * * *", "send")]))
    run(kept.mine.ensure("d", "0 9 * * *", action="send"))
    assert kept.names == ["a", "c", "d"]
    run(kept.mine.pause("a"))
    run(kept.mine.resume("b"))
    run(kept.mine.delete("c"))
    run(kept.mine.update("d", trigger="30 9 * * *"))
    assert kept.names == ["b", "d"]
    (row,) = [row for row in kept.index.rows.values() if row.name == "d"]
    assert row.nominal_ms == 1_777_887_000_000  # 2026-05-04T09:30Z
    run(kept.mine.create("e", once(NOW - timedelta(seconds=5)), action="send"))
    assert kept.names == ["b", "d", "e"]


def test_an_edit_without_a_new_time_keeps_a_due_row() -> None:
    kept, run = IndexedElsewhere(), asyncio.run
    run(kept.mine.create("a", "0 9 * * *", action="send"))
    kept.clock.advance(hours=3)
    run(kept.mine.update("a", note="hello", input={"n": 1}))
    run(kept.mine.ensure("a", "0 9 * * *", action="send"))
    assert [each.nominal_ms for each in run(kept.index.claim_due())] == [1_777_885_200_000]


def test_lost_rows_come_back_after_the_last_time() -> None:
    kept, run = IndexedElsewhere(), asyncio.run
    run(kept.mine.create("a", "0 9 * * *", action="send"))
    run(kept.mine.create("b", "0 9 * * *", action="send", enabled=False))
    kept.index.rows.clear()
    assert run(kept.collection.reindex()) == 2
    assert kept.names == ["a"]
    with pytest.raises(InvalidInput, match=r"store.reconcile\(\)"):
        run(ScheduleCollection(kept.store, "mail").reindex())


def test_create_in_is_refused() -> None:
    with pytest.raises(InvalidInput, match="outside the transaction"):
        IndexedElsewhere().mine.create_in(object(), "a", "0 9 * * *", action="send")


def test_a_tick_posts_each_occurrence_once(caplog: pytest.LogCaptureFixture) -> None:
    kept, seen = IndexedElsewhere(), list[int]()
    for name in ("good", "bad"):
        asyncio.run(kept.mine.create(name, "0 9 * * *", action="send"))
    kept.clock.advance(hours=2)
    with endpoint(lambda path: (500 if "/bad/" in path else 202, b"{}")) as there:
        with caplog.at_level(logging.WARNING):
            kept.tick(kept.index, there.port, on_dispatch=lambda _, status: seen.append(status))
        assert sorted(seen) == [202, 500]
        assert [record.event for record in caplog.records if hasattr(record, "event")] == [
            "tick.dropped"
        ]
        assert kept.tick(kept.index, there.port) == TickReport()
    assert {request["body"]["nominalFireTime"] for request in there.requests} == {
        "2026-05-04T09:00:00+00:00"
    }


def test_a_tick_keeps_its_limits() -> None:
    kept = IndexedElsewhere()
    for number in range(7):
        asyncio.run(kept.mine.create(f"{number}", "0 9 * * *", action="send"))
    kept.clock.advance(hours=2)
    with endpoint(lambda _: (202, b"{}")) as there:
        assert kept.tick(kept.index, there.port, max_per_tick=5, concurrency=2).posted == 5
        assert kept.tick(kept.index, there.port).posted == 2


def test_an_object_that_is_no_index_is_refused() -> None:
    with pytest.raises(InvalidInput, match="neither claim_dispatches nor claim_due"):
        IndexedElsewhere().tick(object(), 1)  # type: ignore[arg-type]


def test_the_route_claims_from_the_index(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DULY_BASE_URL", raising=False)
    flow = Flow("mail")

    @flow.action
    async def send() -> None: ...

    site = serve(flow)
    index = index_of_the_guide()(site.clock)
    site.set_http(tick=TickOptions(base_url=site.url, index=index))
    mine = ScheduleCollection(site.app.store, "mail", index=index).of(user("u_1"))
    made = site.run(mine.create("digest", "0 9 * * *", action="send"))
    assert site.ask("POST", "/api/tick", headers=BEARER).status == 204
    site.clock.advance(hours=2)
    assert site.ask("POST", "/api/tick", headers=BEARER).status == 200
    assert site.ask("POST", "/api/tick", headers=BEARER).status == 204
    (job,) = site.jobs()
    assert (job.schedule_id, job.scope) == (made.id, "user:u_1")
