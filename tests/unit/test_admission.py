"""Tests of admission: slots share ledger reads, and every caller gets an answer or an error."""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.errors import BackendUnavailable
from duly.flows.context import Calls
from duly.model.jobs import JobId, LeasedJob
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedules import ScheduleId
from duly.runtime.worker.admission import Admission


def a_job(number: int) -> LeasedJob:
    values: dict[str, Any] = dict.fromkeys(LeasedJob._fields)
    return LeasedJob(**values | {"id": JobId(f"job_{number}"), "schedule_id": "sch_1"})


def an_occurrence(job_id: JobId) -> Occurrence:
    return Occurrence(
        schedule_id=ScheduleId("sch_1"),
        nominal_ms=1,
        until_ms=1,
        count=1,
        run_at_ms=1,
        state=OccurrenceState.PLANNED,
        flow="mail",
        scope="user:ada",
        name="digest",
        job_id=job_id,
    )


@dataclass
class Ledger:
    """A ledger whose reads wait for a signal, and are recorded."""

    reads: list[list[JobId]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None

    async def occurrences_of_jobs(self, job_ids: Sequence[JobId]) -> dict[JobId, Occurrence]:
        self.reads.append(list(job_ids))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return {each: an_occurrence(each) for each in job_ids if each != "job_9"}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def admission(ledger: Ledger, threads: ThreadPoolExecutor) -> Admission:
    return Admission(cast(Calls, SimpleNamespace(reach=SimpleNamespace(store=ledger))), threads)


@pytest.fixture
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


async def _yield_to_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_calls_during_a_read_share_the_next_one(threads: ThreadPoolExecutor) -> None:
    async def test() -> None:
        ledger = Ledger()
        asked = admission(ledger, threads)
        early = [asyncio.create_task(asked.occurrence(a_job(each))) for each in (1, 2)]
        await _yield_to_loop(3)
        late = [asyncio.create_task(asked.occurrence(a_job(each))) for each in (3, 4, 9)]
        await _yield_to_loop(3)
        ledger.gate.set()
        found = await asyncio.gather(*early, *late)
        assert ledger.reads == [["job_1", "job_2"], ["job_3", "job_4", "job_9"]]
        assert found[-1] is None
        assert [each.job_id for each in found if each] == ["job_1", "job_2", "job_3", "job_4"]
        assert await asked.occurrence(a_job(5)) == an_occurrence(JobId("job_5"))

    run(test())


@pytest.mark.parametrize("error", [BackendUnavailable("gone"), KeyError("a bug")])
def test_an_error_is_raised_in_all_waiting_calls(
    threads: ThreadPoolExecutor, error: Exception
) -> None:
    async def test() -> None:
        ledger = Ledger(error=error)
        ledger.gate.set()
        asked = admission(ledger, threads)
        both = (asked.occurrence(a_job(1)), asked.occurrence(a_job(2)))
        answers = await asyncio.gather(*both, return_exceptions=True)
        assert [answer is error for answer in answers] == [True, True]
        ledger.error = None
        assert await asked.occurrence(a_job(3)) is not None

    run(test())


def test_cancelling_one_call_does_not_affect_others(threads: ThreadPoolExecutor) -> None:
    async def test() -> None:
        ledger = Ledger()
        asked = admission(ledger, threads)
        one, other = (asyncio.create_task(asked.occurrence(a_job(each))) for each in (1, 2))
        await _yield_to_loop(3)
        one.cancel()
        await _yield_to_loop(3)
        ledger.gate.set()
        assert await other == an_occurrence(JobId("job_2"))
        assert one.cancelled()

    run(test())
