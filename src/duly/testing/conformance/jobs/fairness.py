"""Fairness: tokens of (queue, workspace) pairs, slots of queues, and the order of service."""

from __future__ import annotations

import asyncio
from typing import Any

from duly.model.claims import Claims
from duly.model.jobs import JobId, JobState, Token, WorkerId
from duly.model.queues import QueueSettings
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    ADA,
    BOB,
    a_job,
    claimed,
    claims,
    end,
    insert,
    the_job,
)
from duly.testing.conformance.samples import HOUR_MS, MINUTE_MS, START_MS
from duly.testing.conformance.suite import StoreConformance, case

TOKEN_MS = 10_000


async def fairly(store: Store, worker: WorkerId = ADA, **fields: Any) -> Claims:
    """Return a claim by tokens."""
    return await claims(store, worker, fair=True, token_lease_ms=TOKEN_MS, **fields)


async def served(store: Store, worker: WorkerId = ADA, **fields: Any) -> list[str]:
    """Claim by tokens; return the workspaces served, once each, in order."""
    answer = await fairly(store, worker, **fields)
    return list(dict.fromkeys(job.workspace for job in answer.jobs))


async def insert_for(store: Store, workspace: str, count: int = 1, **fields: Any) -> None:
    """Insert jobs of a workspace, named after it."""
    names = [f"{workspace}-{number:04}" for number in range(count)]
    await insert(store, *(a_job(name, workspace=workspace, **fields) for name in names))


def held(answer: Claims) -> set[Token]:
    """Return all tokens of a claim."""
    return {token for tokens in answer.holds.values() for token in tokens}


def rights(answer: Claims) -> dict[str, list[tuple[str, str, int]]]:
    """Return the tokens of each job, without fences, whose growth is unspecified."""
    return {job_id: [token[:3] for token in tokens] for job_id, tokens in answer.holds.items()}


class TokenCases(StoreConformance):
    """Cases for claim_jobs() with fairness, release_tokens(), and renew() of tokens."""

    @case
    async def test_token_is_for_one_pair(self, store: Store) -> None:
        await insert_for(store, "acme", 2)
        await insert_for(store, "bolt", 1)
        answer = await fairly(store)
        acme, bolt = ("default", "acme", 1), ("default", "bolt", 1)
        assert rights(answer) == {"acme-0000": [acme], "acme-0001": [acme], "bolt-0000": [bolt]}
        assert len(held(answer)) == 2
        assert [job.id for job in answer.jobs] == ["acme-0000", "acme-0001", "bolt-0000"]

    @case
    async def test_pair_has_one_token(self, store: Store, clock: ManualClock) -> None:
        await insert_for(store, "acme", 3)
        (first,) = held(await fairly(store, token_batch=1))
        assert await served(store, BOB) == []
        clock.advance(milliseconds=TOKEN_MS - 1)
        assert await served(store, BOB) == []
        clock.advance(milliseconds=1)
        (second,) = held(await fairly(store, BOB, token_batch=1))
        assert second[:3] == first[:3] == ("default", "acme", 1)
        assert second.fence > first.fence

    @case
    async def test_many_claims_at_once_get_one_token(self, store: Store) -> None:
        await insert_for(store, "acme", 300)
        workers = [WorkerId(f"w{number:03}") for number in range(200)]
        answers = await asyncio.gather(
            *(fairly(store, worker, token_batch=1) for worker in workers)
        )
        assert [len(answer.jobs) for answer in answers if answer.jobs] == [1]
        assert len({token for answer in answers for token in held(answer)}) == 1

    @case
    async def test_pairs_have_as_many_tokens_as_decided(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", workspace_limit=2))
        await insert_for(store, "acme", 9)
        tokens = [held(await fairly(store, WorkerId(str(n)), token_batch=1)) for n in range(3)]
        assert [[each.number for each in some] for some in tokens] == [[1], [2], []]

    @case
    async def test_one_token_per_pair_and_claim(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", workspace_limit=5))
        await insert_for(store, "acme", 9)
        answer = await fairly(store, token_batch=2)
        assert (len(answer.jobs), len(held(answer))) == (2, 1)

    @case
    async def test_same_workspace_in_two_queues_is_two_pairs(self, store: Store) -> None:
        await insert_for(store, "acme", queue="one")
        await insert(store, a_job("other", workspace="acme", queue="two"))
        answer = await fairly(store, queues=("one", "two"))
        assert {each[:3] for each in held(answer)} == {("one", "acme", 1), ("two", "acme", 1)}

    @case
    async def test_released_tokens_are_free_at_once(self, store: Store) -> None:
        await insert_for(store, "acme", 2)
        answer = await fairly(store, token_batch=1)
        await end(store, answer.jobs[0], Succeeded())
        assert await served(store, BOB) == []
        await store.release_tokens(ADA, list(held(answer)))
        assert await served(store, BOB) == ["acme"]

    @case
    async def test_only_the_owner_releases(self, store: Store, clock: ManualClock) -> None:
        await insert_for(store, "acme", 3)
        (token,) = held(await fairly(store, token_batch=1))
        await store.release_tokens(BOB, [token])
        await store.release_tokens(ADA, [token._replace(fence=token.fence + 1)])
        await store.release_tokens(ADA, [token._replace(number=7)])
        assert await served(store, BOB) == []
        clock.advance(milliseconds=TOKEN_MS)
        (newer,) = held(await fairly(store, ADA, token_batch=1))
        await store.release_tokens(ADA, [token])
        assert await served(store, BOB) == []
        await store.release_tokens(ADA, [newer])
        assert await served(store, BOB) == ["acme"]

    @case
    async def test_tokens_are_renewed(self, store: Store, clock: ManualClock) -> None:
        await insert_for(store, "acme", 2)
        answer = await fairly(store, token_batch=1)
        (token,) = held(answer)
        for _ in range(5):
            clock.advance(seconds=5)
            renewed = await store.renew(ADA, [], 30_000, [token], TOKEN_MS)
            assert renewed == ([], [])
            assert await served(store, BOB) == []
        await store.renew(BOB, [], 30_000, [token], 60_000)
        clock.advance(milliseconds=TOKEN_MS)
        assert await served(store, BOB) == ["acme"]

    @case
    async def test_void_tokens_are_not_renewed(self, store: Store, clock: ManualClock) -> None:
        await insert_for(store, "acme", 3)
        (token,) = held(await fairly(store, token_batch=1))
        clock.advance(milliseconds=TOKEN_MS)
        await fairly(store, ADA, token_batch=1)
        await store.renew(ADA, [], 30_000, [token], HOUR_MS)
        clock.advance(milliseconds=TOKEN_MS)
        assert await served(store, BOB) == ["acme"]

    @case
    async def test_earliest_waiting_pair_is_first(self, store: Store) -> None:
        for minutes, workspace in ((1, "acme"), (3, "bolt"), (2, "cube")):
            await insert_for(store, workspace, run_at_ms=START_MS - minutes * MINUTE_MS)
        assert await served(store) == ["bolt", "cube", "acme"]

    @case
    async def test_least_recently_served_pair_is_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        for number, workspace in enumerate(("acme", "bolt", "cube")):
            await insert_for(store, workspace, 9, run_at_ms=START_MS - 9 + number)
        turns: list[str] = []
        for _ in range(7):
            answer = await fairly(store, tokens=1, token_batch=1)
            turns += [job.workspace for job in answer.jobs]
            await store.release_tokens(ADA, list(held(answer)))
            clock.advance(milliseconds=1)
        assert turns == ["acme", "bolt", "cube", "acme", "bolt", "cube", "acme"]

    @case
    async def test_tokens_above_a_lowered_limit_were_served_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.set_queue(QueueSettings("default", workspace_limit=2))
        await insert_for(store, "acme", 4)
        await insert_for(store, "bolt", 4)
        for expected in ("acme", "bolt", "acme"):
            assert await served(store, tokens=1, token_batch=1) == [expected]
            clock.advance(milliseconds=1)
        await store.set_queue(QueueSettings("default", workspace_limit=1))
        clock.advance(milliseconds=TOKEN_MS)
        assert await served(store, tokens=1, token_batch=1) == ["bolt"]

    @case
    async def test_queues_compete_by_their_pairs(self, store: Store) -> None:
        await insert_for(store, "acme", queue="one", run_at_ms=START_MS - 1)
        await insert_for(store, "bolt", queue="two", run_at_ms=START_MS - 2)
        assert await served(store, queues=("one", "two")) == ["bolt", "acme"]

    @case
    async def test_priority_orders_inside_a_pair(self, store: Store) -> None:
        await insert(store, a_job("a"), a_job("b", priority=5))
        assert [job.id for job in (await fairly(store)).jobs] == ["b", "a"]

    @case
    async def test_so_many_tokens_at_most(self, store: Store) -> None:
        for workspace in ("acme", "bolt", "cube", "dent", "echo"):
            await insert_for(store, workspace)
        answer = await fairly(store, tokens=3)
        assert len(held(answer)) == len(answer.jobs) == 3

    @case
    async def test_batches_and_limits_are_kept(self, store: Store) -> None:
        for workspace in ("acme", "bolt", "cube"):
            await insert_for(store, workspace, 5)
        answer = await fairly(store, limit=5, token_batch=3)
        assert [job.workspace for job in answer.jobs] == ["acme"] * 3 + ["bolt"] * 2

    @case
    async def test_at_most_once_jobs_count_in_a_batch(self, store: Store) -> None:
        await insert_for(store, "acme", 2, delivery="at_most_once")
        await insert(store, *(a_job(f"z{number}", workspace="acme") for number in range(3)))
        answer = await fairly(store, token_batch=3)
        assert [job.id for job in answer.jobs] == ["acme-0000", "acme-0001", "z0"]

    @case
    async def test_token_of_nothing_is_not_kept(self, store: Store) -> None:
        for workspace in ("acme", "bolt"):
            await insert_for(store, workspace, 2)
        assert await served(store, limit=2) == ["acme"]
        assert await served(store, BOB) == ["bolt"]

    @case
    async def test_workspace_with_a_thousand_jobs_delays_nobody(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_for(store, "many", 1_000)
        clock.advance(hours=1)
        await insert_for(store, "few", 1)
        first = await fairly(store, limit=10, tokens=1, token_batch=10)
        assert {job.workspace for job in first.jobs} == {"many"}
        await store.release_tokens(ADA, list(held(first)))
        clock.advance(milliseconds=1)
        assert await served(store, limit=10, tokens=1, token_batch=10) == ["few"]

    @case
    async def test_pair_needs_something_to_take(self, store: Store, clock: ManualClock) -> None:
        await insert_for(store, "acme", run_at_ms=START_MS + 1_000)
        await insert_for(store, "bolt", action="other.act")
        await insert_for(store, "cube", queue="paused")
        await insert_for(store, "dent", queue="unasked")
        await store.set_queue(QueueSettings("paused", is_paused=True))
        asked: dict[str, Any] = {"queues": ("default", "paused"), "actions": ("reminders.send",)}
        assert await served(store, **asked) == []
        clock.advance(seconds=1)
        assert await served(store, **asked) == ["acme"]
        assert (await the_job(store, "cube-0000")).state is JobState.QUEUED

    @case
    async def test_pairs_with_nothing_to_take_take_no_turn(self, store: Store) -> None:
        """Pairs with only unknown actions must not use up the tokens of a claim."""
        for workspace in ("acme", "bolt", "cube"):
            await insert_for(store, workspace, action="other.act", run_at_ms=START_MS - 9)
        await insert_for(store, "dent")
        assert await served(store, tokens=1, actions=("reminders.send",)) == ["dent"]

    @case
    async def test_lost_job_of_a_pair_is_taken_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_for(store, "acme")
        assert await served(store) == ["acme"]
        assert await served(store, BOB) == []
        clock.advance(seconds=30)
        assert await served(store, BOB) == ["acme"]


class SlotCases(StoreConformance):
    """Cases for queues with a job limit across all workers."""

    @case
    async def test_slots_bound_what_is_claimed(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", job_limit=3))
        await insert_for(store, "acme", 5)
        answer = await claims(store, limit=2)
        assert rights(answer) == {
            "acme-0000": [("default", "", 1)],
            "acme-0001": [("default", "", 2)],
        }
        answer = await claims(store, BOB)
        assert rights(answer) == {"acme-0002": [("default", "", 3)]}
        assert await claimed(store, BOB) == []

    @case
    async def test_at_most_once_jobs_need_slots_too(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", job_limit=2))
        await insert_for(store, "acme", 3, delivery="at_most_once")
        answer = await claims(store)
        assert [job.id for job in answer.jobs] == ["acme-0000", "acme-0001"]
        assert len(held(answer)) == 2

    @case
    async def test_slots_go_by_place_whatever_the_kind(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", job_limit=3))
        await insert(store, a_job("a", delivery="at_most_once"))
        await insert(store, a_job("b"), a_job("c"), a_job("d"))
        assert await claimed(store) == ["a", "b", "c"]

    @case
    async def test_released_slots_are_free_at_once(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", job_limit=1))
        await insert_for(store, "acme", 2)
        answer = await claims(store)
        await end(store, answer.jobs[0], Succeeded())
        assert await claimed(store, BOB) == []
        await store.release_tokens(ADA, list(held(answer)))
        assert rights(await claims(store, BOB)) == {"acme-0001": [("default", "", 1)]}

    @case
    async def test_slots_live_as_long_as_the_job_lease(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.set_queue(QueueSettings("default", job_limit=1))
        await insert_for(store, "acme", 2)
        answer = await claims(store, lease_ms=60_000)
        clock.advance(milliseconds=59_999)
        assert await claimed(store, BOB) == []
        leases = [(job.id, job.fence) for job in answer.jobs]
        await store.renew(ADA, leases, 60_000, list(held(answer)), TOKEN_MS)
        clock.advance(milliseconds=59_999)
        assert await claimed(store, BOB) == []
        clock.advance(milliseconds=1)
        assert await claimed(store, BOB, limit=1) == ["acme-0000"]

    @case
    async def test_queues_have_their_own_slots(self, store: Store) -> None:
        await store.set_queue(QueueSettings("one", job_limit=1))
        await insert_for(store, "acme", 3, queue="one")
        await insert_for(store, "bolt", 3, queue="two")
        answer = await claims(store, queues=("one", "two"))
        assert [job.queue for job in answer.jobs] == ["one", "two", "two", "two"]
        assert set(answer.holds) == {JobId("acme-0000")}

    @case
    async def test_limit_without_slots_is_a_pause(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", job_limit=0))
        await insert_for(store, "acme")
        assert await claimed(store) == []

    @case
    async def test_limit_may_change(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", job_limit=1))
        await insert_for(store, "acme", 5)
        assert len(await claimed(store)) == 1
        await store.set_queue(QueueSettings("default", job_limit=2))
        assert len(await claimed(store)) == 1
        await store.set_queue(QueueSettings("default"))
        assert len(await claimed(store)) == 3

    @case
    async def test_fair_jobs_hold_token_and_slot(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", job_limit=3))
        for workspace in ("acme", "bolt"):
            await insert_for(store, workspace, 2)
        answer = await fairly(store)
        acme, bolt = ("default", "acme", 1), ("default", "bolt", 1)
        assert rights(answer) == {
            "acme-0000": [acme, ("default", "", 1)],
            "acme-0001": [acme, ("default", "", 2)],
            "bolt-0000": [bolt, ("default", "", 3)],
        }

    @case
    async def test_full_queue_takes_no_turn(self, store: Store) -> None:
        """Pairs of a queue without a free slot must not use up the tokens of a claim."""
        await store.set_queue(QueueSettings("full", job_limit=0))
        for workspace in ("acme", "bolt", "cube"):
            await insert_for(store, workspace, queue="full", run_at_ms=START_MS - 9)
        await insert_for(store, "dent")
        assert await served(store, queues=("full", "default"), tokens=1) == ["dent"]
