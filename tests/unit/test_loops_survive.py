"""Tests that loops continue after any error of the store, including bugs and conflicts."""

import asyncio
from typing import Any

import pytest

from duly.errors import BackendUnavailable, Conflict, DulyError, InternalError
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest, Claims, NextLeaseEnd
from duly.model.plans import PlanReport, PlanRequest
from duly.runtime import Keeper, KeeperOptions, Planner, PlannerOptions, Worker, WorkerOptions
from duly.stores import MemoryStore

FAILURES = [BackendUnavailable("not now"), InternalError("a bug"), Conflict("taken")]


class FailingOnce(MemoryStore):
    """A store whose first call of a loop's verb fails; the second sets an event."""

    def __init__(self, error: DulyError) -> None:
        super().__init__()
        self._error = error
        self._calls = 0
        self.called_again = asyncio.Event()

    def _called(self) -> None:
        self._calls += 1
        if self._calls == 1:
            raise self._error
        self.called_again.set()

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        self._called()
        return await super().plan_occurrences(request)

    async def next_lease_end(self) -> NextLeaseEnd:
        self._called()
        return await super().next_lease_end()

    async def claim_jobs(self, request: ClaimRequest) -> Claims:
        self._called()
        return await super().claim_jobs(request)


@pytest.mark.parametrize("kind", ["planner", "keeper", "worker"])
@pytest.mark.parametrize("error", FAILURES, ids=lambda each: type(each).__name__)
def test_loops_continue_after_an_error_of_the_store(kind: str, error: DulyError) -> None:
    async def run() -> None:
        store = FailingOnce(error)
        loop: Any
        if kind == "planner":
            loop = Planner(store, PlannerOptions())
        elif kind == "keeper":
            loop = Keeper(store, KeeperOptions())
        else:
            loop = Worker(store, Flow("mail").actions, WorkerOptions())
        running = asyncio.create_task(loop.run())
        again = asyncio.create_task(store.called_again.wait())
        await asyncio.wait({running, again}, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done(), running.exception()
        loop.stop()
        await running

    asyncio.run(run())
