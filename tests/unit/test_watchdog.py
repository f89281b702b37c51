"""Tests of the watchdog: it logs a blocking handler, stores the failure, and ends the process."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from duly.model.jobs import JobId, LeasedJob
from duly.runtime.worker.watchdog import Watchdog

JOB = LeasedJob(JobId("job_7"), "mail.send", "null", *[None] * 13)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _ended_threads() -> Iterator[None]:
    """Wait for the watchdog thread of a test, so that it does not log during the next test."""
    yield
    for thread in threading.enumerate():
        if thread.name == "duly-watchdog":
            thread.join(10)
            assert not thread.is_alive()


async def _blocked(release: threading.Event) -> None:
    release.wait(10)


def test_a_blocking_handler_is_logged_and_fails(caplog: pytest.LogCaptureFixture) -> None:
    stored: list[tuple[str, str]] = []
    ended = threading.Event()

    async def store(job: LeasedJob, why: str) -> None:
        stored.append((job.id, why))

    async def play() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(_blocked(ended), name="handler")
        watchdog = Watchdog(loop, 0.2, lambda seen: JOB if seen is task else None, store, ended.set)
        await task
        watchdog.close()

    with caplog.at_level(logging.INFO, "duly.runtime.worker.watchdog"):
        asyncio.run(play())
    assert ended.is_set()
    assert stored == [("job_7", "blocked the event loop of its worker for over 0.2 s")]
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "job job_7 (mail.send) blocks the event loop" in logged[0].message
    assert "release.wait" in logged[0].message, "the blocking line is logged"


def test_other_blocking_code_is_only_logged() -> None:
    ended, warned = threading.Event(), threading.Event()
    logged: list[str] = []

    class Warned(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())
            warned.set()

    async def store(_job: LeasedJob, _why: str) -> None:
        raise AssertionError("no job is to blame")

    async def play() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), 0.1, lambda _: None, store, ended.set)
        await _blocked(warned)
        watchdog.close()

    handler = Warned(logging.ERROR)
    logger = logging.getLogger("duly.runtime.worker.watchdog")
    logger.addHandler(handler)
    try:
        asyncio.run(play())
    finally:
        logger.removeHandler(handler)
    assert "other code blocks the event loop" in logged[0]
    assert not ended.is_set()


def test_a_running_loop_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async def store(_job: LeasedJob, _why: str) -> None:
            raise AssertionError("nothing is blocked")

        watchdog = Watchdog(asyncio.get_running_loop(), 5.0, lambda _: JOB, store, lambda: None)
        for _ in range(100):
            await asyncio.sleep(0)
        watchdog.close()

    asyncio.run(play())
    assert caplog.text == ""
