"""Tests of the buffer of a worker: first in, first out, or round-robin over pairs."""

from duly import Duly, Flow, WorkerOptions
from duly.model.jobs import JobId, LeasedJob
from duly.runtime.worker.buffer import Buffer, JobsByPair


def job(name: str, workspace: str, queue: str = "default") -> LeasedJob:
    """Return a leased job of which only id, workspace and queue matter."""
    blank = LeasedJob(*([None] * len(LeasedJob._fields)))  # type: ignore[arg-type]
    return blank._replace(id=JobId(name), queue=queue, workspace=workspace)


def names(jobs: JobsByPair) -> list[str]:
    return [jobs.popleft().id for _ in range(len(jobs))]


def test_pairs_alternate() -> None:
    jobs = JobsByPair()
    jobs.extend([job("a1", "acme"), job("a2", "acme"), job("a3", "acme"), job("b1", "bolt")])
    jobs.extend([job("c1", "acme", "mail"), job("a4", "acme")])
    assert [each.id for each in jobs] == ["a1", "a2", "a3", "a4", "b1", "c1"]
    assert names(jobs) == ["a1", "b1", "c1", "a2", "a3", "a4"]
    assert len(jobs) == 0


def test_a_new_pair_does_not_wait_for_the_backlog_of_others() -> None:
    jobs = JobsByPair()
    jobs.extend([job(f"a{number}", "acme") for number in range(9)])
    assert jobs.popleft().id == "a0"
    jobs.extend([job("b", "bolt")])
    assert [jobs.popleft().id for _ in range(3)] == ["a1", "b", "a2"]


def test_jobs_can_be_removed() -> None:
    jobs = JobsByPair()
    jobs.extend([job("a1", "acme"), job("a2", "acme"), job("b", "bolt")])
    jobs.remove(job("a1", "acme"))
    jobs.remove(job("b", "bolt"))
    assert names(jobs) == ["a2"]
    jobs.extend([job("a3", "acme")])
    jobs.clear()
    assert (len(jobs), list(jobs)) == (0, [])


def test_a_fair_buffer_can_be_emptied() -> None:
    buffer = Buffer(10, 0.5, lambda: None, fair=True)
    buffer.take([job("a1", "acme"), job("a2", "acme"), job("b", "bolt")])
    withdrawn = buffer.withdraw(JobId("a2"))
    assert withdrawn is not None
    assert withdrawn.id == "a2"
    assert buffer.withdraw(JobId("a2")) is None
    assert [each.id for each in buffer.empty()] == ["a1", "b"]
    assert buffer.pop() is None


def test_pairs_alternate_on_fair_workers_only() -> None:
    app = Duly("memory:", flows=[Flow("work")])
    for fair in (False, True):
        buffer = app.worker(WorkerOptions(fair=fair))._buffer
        buffer.take([job("a1", "acme"), job("a2", "acme"), job("b", "bolt")])
        popped = [buffer.pop(), buffer.pop()]
        assert [each.id for each in popped if each] == ["a1", "b" if fair else "a2"]
