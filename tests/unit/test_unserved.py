"""Tests of waiting jobs that no live worker would claim."""

from dataclasses import replace

import pytest

from duly.model.jobs import WorkerId
from duly.model.queues import WaitingWork, WorkerInfo
from duly.operate.unserved import find_unserved

WORKER = WorkerInfo(WorkerId("w"), "host", 1, ("default", "mail"), 4, actions=("crm.a", "crm.b"))


def work(queue: str, action: str, oldest_ms: int = 5, jobs: int = 7) -> WaitingWork:
    return WaitingWork(queue, action, jobs, oldest_ms, is_capped=False)


def test_registered_queues_and_actions_are_served() -> None:
    served = [work("default", "crm.a"), work("mail", "crm.b")]
    assert find_unserved(served, [WORKER]) == []


def test_unserved_jobs_are_found_longest_waiting_first() -> None:
    waiting = [work("bulk", "crm.a", 5), work("default", "crm.a"), work("mail", "crm.gone", 3)]
    unknown, queue = find_unserved(waiting, [WORKER])
    assert (unknown.queue, unknown.action, unknown.is_queue_served) == ("mail", "crm.gone", True)
    assert (queue.queue, queue.action, queue.is_queue_served) == ("bulk", "crm.a", False)
    assert unknown.words() == "7 jobs of action 'crm.gone' in queue 'mail'"
    assert replace(queue, is_capped=True).words() == "7+ jobs in queue 'bulk' (action 'crm.a')"


def test_a_queue_and_its_action_must_be_served_by_one_worker() -> None:
    """If one worker has the queue and another the action, neither claims the job."""
    first = replace(WORKER, queues=("mail",), actions=("crm.b",))
    second = replace(WORKER, queues=("default",), actions=("crm.a",))
    assert [each.action for each in find_unserved([work("mail", "crm.a")], [first, second])] == [
        "crm.a"
    ]


@pytest.mark.parametrize("workers", [[], [replace(WORKER, is_stopping=True)]])
def test_without_a_worker_that_claims_nothing_is_served(workers: list[WorkerInfo]) -> None:
    assert len(find_unserved([work("default", "crm.a")], workers)) == 1


def test_a_worker_of_an_earlier_release_counts_as_having_every_action() -> None:
    earlier = replace(WORKER, actions=None)
    assert find_unserved([work("mail", "crm.gone")], [earlier, WORKER]) == []
    assert find_unserved([work("mail", "crm.gone")], [WORKER, earlier]) == []


def test_jobs_of_a_paused_queue_wait_on_purpose() -> None:
    assert find_unserved([work("bulk", "crm.a")], [], paused={"bulk"}) == []
