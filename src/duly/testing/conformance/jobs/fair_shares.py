"""Fairness with few pairs: shares of a claim, and claims under a held token."""

from __future__ import annotations

from typing import Any

from duly.model.claims import Claims, HeldToken
from duly.model.jobs import JobId, Token, WorkerId
from duly.model.queues import QueueSettings
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.fairness import TOKEN_MS, fairly, held, insert_for, served
from duly.testing.conformance.jobs.samples import ADA, BOB, a_job, insert
from duly.testing.conformance.samples import START_MS
from duly.testing.conformance.suite import StoreConformance, case


async def share(store: Store, worker: WorkerId = ADA, **fields: Any) -> Claims:
    """Claim by tokens: 2 jobs per token while many pairs wait, up to 50 while few wait."""
    return await fairly(store, worker, **{"token_batch": 2, "max_token_batch": 50} | fields)


async def claim_on(
    store: Store, token: Token, worker: WorkerId = ADA, room: int = 50, **fields: Any
) -> list[JobId]:
    """Claim under a held token; return the job ids."""
    answer = await share(store, worker, held=(HeldToken(token, room),), **fields)
    assert held(answer) in ({token}, set())
    return [job.id for job in answer.jobs]


def counts(answer: Claims) -> dict[str, int]:
    """Return the number of claimed jobs by workspace, in claim order."""
    found: dict[str, int] = {}
    for job in answer.jobs:
        found[job.workspace] = found.get(job.workspace, 0) + 1
    return found


class ShareCases(StoreConformance):
    """Cases for claim_jobs() with `max_token_batch` and `held`."""

    @case
    async def test_lone_pair_takes_the_room(self, store: Store) -> None:
        await insert_for(store, "acme", 40)
        answer = await share(store, limit=30)
        assert (counts(answer), len(held(answer))) == ({"acme": 30}, 1)

    @case
    async def test_largest_batch_is_kept(self, store: Store) -> None:
        await insert_for(store, "acme", 40)
        assert counts(await share(store, max_token_batch=7)) == {"acme": 7}

    @case
    async def test_few_pairs_share_the_room(self, store: Store) -> None:
        """A claim serves about half of few waiting pairs and leaves the rest to other workers."""
        for workspace in ("acme", "bolt", "cube"):
            await insert_for(store, workspace, 20)
        assert counts(await share(store, limit=31)) == {"acme": 15, "bolt": 15}
        assert counts(await share(store, BOB, limit=20)) == {"cube": 10}

    @case
    async def test_many_pairs_get_the_usual_batch(self, store: Store) -> None:
        for number in range(12):
            await insert_for(store, f"w{number:02}", 5)
        answer = await share(store, limit=10)
        assert counts(answer) == {f"w{number:02}": 2 for number in range(5)}

    @case
    async def test_pairs_that_are_being_served_count(self, store: Store) -> None:
        """A pair whose token another worker holds counts when the shares are computed."""
        await insert_for(store, "acme", 20)
        await share(store, BOB, limit=2)
        await insert_for(store, "bolt", 20)
        await insert_for(store, "cube", 20)
        assert counts(await share(store, limit=20)) == {"bolt": 10, "cube": 10}

    @case
    async def test_lone_pair_is_claimed_on(self, store: Store, clock: ManualClock) -> None:
        await insert_for(store, "acme", 9)
        (token,) = held(await share(store, limit=3))
        assert await served(store, BOB) == []
        for _ in range(3):
            clock.advance(milliseconds=TOKEN_MS - 1)  # a claim also renews the token
            assert len(await claim_on(store, token, limit=2)) == 2
            assert await served(store, BOB) == []
        clock.advance(milliseconds=TOKEN_MS)
        assert await served(store, BOB) != []

    @case
    async def test_held_token_has_room_for_so_many(self, store: Store) -> None:
        await insert_for(store, "acme", 9)
        (token,) = held(await share(store, limit=3))
        assert len(await claim_on(store, token, room=4)) == 4
        assert await claim_on(store, token, room=0) == []

    @case
    async def test_other_pairs_come_before_a_held_one(self, store: Store) -> None:
        await insert_for(store, "many", 40, run_at_ms=START_MS - 9)
        (token,) = held(await share(store, limit=3))
        await insert_for(store, "few", 1)
        answer = await share(store, limit=20, held=(HeldToken(token, 50),))
        assert counts(answer) == {"few": 1}
        assert len(await claim_on(store, token, limit=20)) == 20

    @case
    async def test_pair_that_was_claimed_on_is_served_last(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_for(store, "acme", 9, run_at_ms=START_MS - 9)
        (acme,) = held(await share(store, limit=3))
        clock.advance(milliseconds=1)
        await insert_for(store, "bolt", 1)
        (bolt,) = held(await share(store, BOB))
        clock.advance(milliseconds=1)
        assert len(await claim_on(store, acme, limit=2)) == 2
        await store.release_tokens(ADA, [acme])
        await store.release_tokens(BOB, [bolt])
        await insert(store, a_job("again", workspace="bolt"))
        assert await served(store, tokens=1) == ["bolt"]

    @case
    async def test_lost_tokens_are_not_claimed_on(self, store: Store, clock: ManualClock) -> None:
        await insert_for(store, "acme", 9)
        (token,) = held(await share(store, limit=2))
        assert await claim_on(store, token, BOB) == []
        assert await claim_on(store, token._replace(fence=token.fence + 1)) == []
        clock.advance(milliseconds=TOKEN_MS)
        (other,) = held(await share(store, BOB, limit=2))
        assert await claim_on(store, token) == []
        assert len(await claim_on(store, other, BOB, limit=2)) == 2

    @case
    async def test_ended_token_is_leased_anew(self, store: Store, clock: ManualClock) -> None:
        await insert_for(store, "acme", 9)
        (token,) = held(await share(store, limit=2))
        clock.advance(milliseconds=TOKEN_MS)
        (newer,) = held(await share(store, limit=2, held=(HeldToken(token, 50),)))
        assert (newer[:3], newer.fence > token.fence) == (token[:3], True)

    @case
    async def test_held_token_is_enough(self, store: Store) -> None:
        """A claim under a held token takes no second token of the pair."""
        await store.set_queue(QueueSettings("default", workspace_limit=2))
        await insert_for(store, "acme", 9)
        (token,) = held(await share(store, limit=2))
        assert len(await claim_on(store, token, limit=2)) == 2
        assert len(held(await share(store, BOB, limit=2))) == 1

    @case
    async def test_tokens_beyond_a_lowered_limit_are_not_claimed_on(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", workspace_limit=2))
        await insert_for(store, "acme", 9)
        await share(store, BOB, limit=2)
        (second,) = held(await share(store, limit=2))
        assert second.number == 2
        await store.set_queue(QueueSettings("default", workspace_limit=1))
        assert await claim_on(store, second) == []

    @case
    async def test_unknown_job_in_front_ends_a_turn(self, store: Store) -> None:
        """A held token yields nothing if the first job's action is unknown to the worker."""
        known = ("reminders.send",)
        await insert_for(store, "acme", 9)
        (token,) = held(await share(store, limit=2, actions=known))
        assert len(await claim_on(store, token, limit=1, actions=known)) == 1
        await insert(store, a_job("b", workspace="acme", action="other.act", priority=5))
        assert await claim_on(store, token, actions=known) == []
        assert len(await claim_on(store, token, limit=1)) == 1

    @case
    async def test_full_queue_is_not_claimed_on(self, store: Store) -> None:
        await store.set_queue(QueueSettings("default", job_limit=3))
        await insert_for(store, "acme", 9)
        answer = await share(store, limit=2)
        (token,) = {each for each in held(answer) if each.workspace}
        more = await share(store, held=(HeldToken(token, 50),))
        assert [job.id for job in more.jobs] == ["acme-0002"]
        assert (await share(store, held=(HeldToken(token, 50),))).jobs == []
