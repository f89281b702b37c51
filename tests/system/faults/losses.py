"""Lost workers under a full backlog: rescued jobs keep their place, and nobody pays for others."""

from collections.abc import Collection, Iterable
from typing import Any

from duly.errors import BackendUnavailable
from duly.model.jobs import FINAL, JobId, JobState
from tests.system.application import POISONED
from tests.system.cluster import Cluster
from tests.system.faults.producer import Producer, keep_waiting
from tests.system.faults.site import Load, Site

ONCE = 200
"""At-most-once jobs, most."""
FIRST = 1_000
"""The priority of jobs that go before all others."""
HELD_S = 1.0
HANDLER_S = 0.1
"""Long enough that a backlog can be kept full on two cores: 640 jobs a second on 64 slots."""


def poison_backlog(site: Site, load: Load, _: Cluster) -> int:
    """Jobs that kill their worker, while there is more to do than anybody can.

    The backlog stays full until the poison jobs are dead and those lost beside them have ended.
    """
    with _backlog(site, load, retry=POISONED) as producer:
        for _worker in range(2):
            site.start(is_kept=True)
        _until_working(site, producer)
        beside = list(producer.ids)
        poisoned = site.enqueue("poison", [None] * load.rounds, priority=FIRST)
        _until_final(site, poisoned, "the poison jobs end")
        _until_final(site, beside, "those beside them end")
    site.until_ended()
    assert all(job.state is JobState.DEAD for job in site.jobs(poisoned)), "poison survived"
    site.note_fault_end(probes=True)
    return load.rounds


def lose_twice(site: Site, load: Load, _: Cluster, planted: str = "") -> int:
    """Jobs lose two workers, one after the other, under a full backlog; the third runs them all."""
    with _backlog(site, load, retry=POISONED) as producer:
        producer.until_enqueued(1)
        held = site.enqueue("steady", [HELD_S] * site.slots, priority=FIRST, retry=POISONED)
        victim = site.start(planted=planted)
        for losses in (1, 2):
            _until_started(site, held, losses * len(held))
            site.lose(victim)
            victim = site.start(planted=planted)
            site.note_fault_end()
        _until_final(site, held, "the lost jobs end")
    site.until_ended()
    jobs = site.jobs(held)
    right = sum(job.state is JobState.SUCCEEDED and job.attempts == 1 for job in jobs)
    assert right == len(held), f"{len(held) - right} jobs paid for the loss of their worker"
    assert any(job.fence > 2 for job in jobs), "no job has lost two workers"
    return 0


def once_under_load(site: Site, load: Load, _: Cluster) -> int:
    """At-most-once jobs of a high priority beside a full backlog; a worker is killed meanwhile.

    Those that had begun on it are dead, and nobody begins them again; all others succeed.
    """
    with _backlog(site, load) as producer:
        victim = site.start()
        site.start()
        _until_working(site, producer)
        count = min(ONCE, load.jobs)
        before = producer.ids[-count:]
        once = site.enqueue("once_steady", [0.02] * count, priority=FIRST)
        _until_started(site, once, count // 4)
        site.lose(victim)
        site.note_fault_end()
        _until_final(site, once, "the at-most-once jobs end")
    site.until_ended()
    _check_order(site, once, before)
    runs = site.record.runs()
    assert max(runs[each].starts.total() for each in once) == 1, "an at-most-once job ran twice"
    dead = [job for job in site.jobs(once) if job.state is JobState.DEAD]
    # The start is recorded before the handler is called; only jobs merely claimed are given back.
    assert all(job.attempts == 1 for job in dead), "a job that had not begun is dead"
    return len(dead)


def _check_order(site: Site, once: Iterable[JobId], before: Collection[JobId]) -> None:
    """Look that the jobs of the high priority were claimed before those enqueued earlier."""
    last = max(_first_claim_ms(site, job_id) for job_id in once)
    overtaken = sum(_first_claim_ms(site, job_id) >= last for job_id in before)
    # Some may have been claimed already, or were just being claimed.
    assert overtaken > len(before) / 2, f"{overtaken} of {len(before)} earlier jobs came later"


def _first_claim_ms(site: Site, job_id: JobId) -> int:
    events = site.run(site.store.job_events(job_id))
    return next(event.at_ms for event in events if event.state is JobState.PROCESSING)


def _backlog(site: Site, load: Load, **options: Any) -> Producer:
    """Keep more jobs waiting than workers claim ahead."""
    jobs = max(load.jobs, 20 * site.slots)
    return Producer(site, keep_waiting(jobs), handler_s=HANDLER_S, **options)


def _until_working(site: Site, producer: Producer) -> None:
    """Wait until workers are busy and a backlog waits."""
    site.until(lambda: producer.count_ends() > site.slots, "workers are busy")
    site.until(lambda: producer.count_waiting() > 15 * site.slots, "a backlog waits")


def _until_started(site: Site, ids: Iterable[JobId], starts: int) -> None:
    """Wait until handlers of the jobs have been started so often in all."""
    wanted = set(ids)

    def count() -> int:
        return sum(line.moment == "start" and line.job_id in wanted for line in site.record.lines())

    site.until(lambda: count() >= starts, f"{starts} starts")


def _until_final(site: Site, ids: Iterable[JobId], what: str) -> None:
    """Wait until jobs have ended."""
    pending = list(ids)

    def are_there() -> bool:
        try:
            while pending and site.jobs(pending[-1:])[0].state in FINAL:
                pending.pop()
        except BackendUnavailable:
            return False
        return not pending

    site.until(are_there, what)
