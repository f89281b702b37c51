"""The same dispatch made twice concurrently: one commits between two reads of the other."""

import asyncio
import threading
from typing import Any

import pytest

from duly.engine.dispatch import fires
from duly.model.dispatches import Duplicate, Fire, FireAnswer, Fired
from duly.model.jobs import JobId, NewJob
from duly.model.schedules import ScheduleId
from duly.stores import open_store

AT_MS = 1_772_452_800_000


def request(job_id: str, **fields: Any) -> Fire:
    job = NewJob(
        id=JobId(job_id),
        action="mail.send",
        schedule_id=ScheduleId("sch_a"),
        nominal_ms=AT_MS,
        **fields,
    )
    return Fire(job, "mail", "system", "a")


def fire_beside(
    url: str, monkeypatch: pytest.MonkeyPatch, name: str, mine: Fire, other: Fire
) -> FireAnswer:
    """Fire while another connection fires and commits just before the named step."""

    async def run() -> FireAnswer:
        store, beside = open_store(url), open_store(url)
        plain, met = getattr(fires, name), threading.Event()

        def step(*asked: Any) -> Any:
            if not met.is_set():
                met.set()
                asyncio.run_coroutine_threadsafe(beside.fire(other), loop).result(30)
            return plain(*asked)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(fires, name, step)
        answer = await store.fire(mine)
        assert met.is_set()
        assert len(await store.count_jobs()) == 1
        await store.close()
        await beside.close()
        return answer

    return asyncio.run(run())


@pytest.mark.parametrize("key", [None, "k"])
def test_the_same_call_is_answered_with_its_job(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    call = request("j1", key=key)
    answer = fire_beside(postgres_url, monkeypatch, "_standing", call, call)
    assert answer == Fired(JobId("j1"))


def test_another_call_is_a_duplicate(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = fire_beside(postgres_url, monkeypatch, "_standing", request("j2"), request("j1"))
    assert answer == Duplicate(JobId("j1"))
