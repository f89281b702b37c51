"""Tests of leases: reports of late renewals and of tokens held for long."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from duly import Duly, Flow
from duly.model.claims import ClaimRequest
from duly.model.jobs import WorkerId
from duly.runtime.worker.leases import STUCK_S, Leases

WORKER = WorkerId("w")


class HeldLeases:
    """The leases of a worker, on a manual clock."""

    def __init__(self, app: Duly) -> None:
        self.app = app
        self.reported: Counter[str] = Counter()
        self.now = 100.0
        self._loop = asyncio.get_running_loop()
        self._loop.time = lambda: self.now  # type: ignore[method-assign]
        self.leases = Leases(app.store, WORKER, 30, 10, fair=True)
        self.leases.note = self._note

    def _note(self, name: str) -> None:
        self.reported[name] += 1

    async def claim(self) -> None:
        """Enqueue a job and claim it with its token."""
        await self.app.client.enqueue("work.wait", None)
        request = ClaimRequest(worker=WORKER, fair=True)
        self.leases.add(await self.app.store.claim_jobs(request))

    async def renew(self, after_s: float) -> None:
        """Renew the leases after some time."""
        self.now += after_s
        await self.leases.renew()


def on_a_manual_clock(case: Callable[[HeldLeases], Coroutine[Any, Any, None]]) -> None:
    flow = Flow("work")

    @flow.action
    async def wait() -> None: ...

    async def run() -> None:
        await case(HeldLeases(Duly("memory:", flows=[flow])))

    asyncio.run(run())


@pytest.mark.parametrize(("after_s", "late"), [(10, 0), (27, 0), (28, 1)])
def test_a_renewal_is_late_after_nine_tenths(after_s: float, late: int) -> None:
    async def case(held: HeldLeases) -> None:
        await held.claim()
        await held.renew(after_s)
        assert held.reported["late_renewals"] == late
        await held.renew(10)
        assert held.reported["late_renewals"] == late

    on_a_manual_clock(case)


def test_time_without_leases_is_not_counted() -> None:
    async def case(held: HeldLeases) -> None:
        await held.claim()
        (job_id,) = held.leases._held
        held.leases.drop([(job_id, held.leases._held[job_id])])
        await held.leases.give_back()
        held.now += 1_000
        await held.claim()
        await held.renew(10)
        assert held.reported == {}

    on_a_manual_clock(case)


def test_a_token_held_for_long_is_reported_once() -> None:
    async def case(held: HeldLeases) -> None:
        await held.claim()
        for _ in range(int(STUCK_S / 10)):
            await held.renew(10)
        assert held.reported == {}
        for _ in range(3):
            await held.renew(10)
        assert held.reported == {"stuck_tokens": 1}

    on_a_manual_clock(case)


def test_the_worker_of_an_application_counts_them_as_metrics() -> None:
    async def case(held: HeldLeases) -> None:
        held.app.worker()._leases.note("late_renewals")
        assert held.app.meters.counts["late_renewals"] == 1

    on_a_manual_clock(case)
