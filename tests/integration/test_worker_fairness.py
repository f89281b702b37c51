"""Fair workers: a single workspace fills all slots, several are served in turn."""

import asyncio
from collections import Counter

import pytest

from duly.errors import InvalidInput
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest, Claims
from duly.model.jobs import Token, WorkerId
from duly.runtime import WorkerOptions
from tests.integration.working import Watched, enqueue, in_loop, open_app, working

OTHER = WorkerId("other")
FEW = ("bolt", "cube", "dent", "echo", "fort")


class Workspaces:
    """`work.step` records the workspace of its job and waits until it is released."""

    def __init__(self) -> None:
        self.flow = Flow("work")
        self.begun: list[str] = []
        self._may_end = asyncio.Semaphore(0)
        self._changed = asyncio.Condition()

        async def step(ctx: Context) -> None:
            self.begun.append(ctx.workspace_id)
            async with self._changed:
                self._changed.notify_all()
            await self._may_end.acquire()

        self.flow.action(step)

    def let_go(self, jobs: int = 10_000) -> None:
        """Let the given number of jobs end."""
        for _ in range(jobs):
            self._may_end.release()

    async def until(self, count: int) -> None:
        """Wait until `count` jobs have started."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.begun) >= count)


def claims_of(store: Watched) -> list[tuple[ClaimRequest, Claims]]:
    """Return the requests of claims with their answers."""
    return [(args[0], answer) for verb, args, answer in store.calls if verb == "claim_jobs"]


@in_loop
async def test_a_lone_workspace_gets_every_slot(any_url: str) -> None:
    workspaces = Workspaces()
    app, store = open_app(any_url, workspaces.flow)
    async with app:
        ids = await enqueue(app, "work.step", [None] * 60, workspace="acme")
        async with working(app, fair=True, slots=24, token_batch=5):
            await workspaces.until(24)
            workspaces.let_go()
            await store.ended(*ids)
        tokens = {token for _, claims in claims_of(store) for token in _tokens(claims)}
        assert {token[:3] for token in tokens} == {("default", "acme", 1)}


@in_loop
async def test_a_token_batch_of_one_stays_one(any_url: str) -> None:
    workspaces = Workspaces()
    app, store = open_app(any_url, workspaces.flow)
    async with app:
        ids = await enqueue(app, "work.step", [None] * 3, workspace="acme")
        async with working(app, fair=True, slots=8, token_batch=1):
            await workspaces.until(1)
            await store.until("claim_jobs", 2)
            assert workspaces.begun == ["acme"]
            workspaces.let_go()
            await store.ended(*ids)
        assert max(len(claims.jobs) for _, claims in claims_of(store)) == 1


@in_loop
async def test_a_token_is_kept_while_its_workspace_is_alone(any_url: str) -> None:
    """A lease per batch would cost one transaction to take it and one to give it back."""
    workspaces = Workspaces()
    app, store = open_app(any_url, workspaces.flow)
    async with app:
        ids = await enqueue(app, "work.step", [None] * 40, workspace="acme")
        async with working(app, fair=True, slots=4, token_batch=2, max_token_batch=6):
            for ended in range(30):
                await workspaces.until(4 + ended)
                workspaces.let_go(1)
            assert store.count("release_tokens") == 0
            workspaces.let_go()
            await store.ended(*ids)
        taken = [(request, claims) for request, claims in claims_of(store) if claims.jobs]
        for request, claims in taken:
            (token,) = _tokens(claims)
            assert len(claims.jobs) <= dict(request.held).get(token, 6)


@in_loop
async def test_a_large_backlog_delays_others_by_two_batches(any_url: str) -> None:
    workspaces = Workspaces()
    app, store = open_app(any_url, workspaces.flow)
    async with app:
        await enqueue(app, "work.step", [None] * 4_000, workspace="acme")
        async with working(app, fair=True, slots=4, max_token_batch=40):
            await workspaces.until(4)
            workspaces.let_go()
            await workspaces.until(100)
            ids, stored_at = [], {}
            for workspace in FEW:
                ids += await enqueue(app, "work.step", [None] * 2, workspace=workspace)
                stored_at[workspace] = len(workspaces.begun)
            await store.ended(*ids)
        for workspace, at in stored_at.items():
            delay = workspaces.begun[at : max(at, workspaces.begun.index(workspace))]
            # One batch claimed ahead when the job arrived, and one by a claim in progress.
            assert delay.count("acme") <= 2 * 40


@in_loop
async def test_few_workspaces_share_the_slots(any_url: str) -> None:
    workspaces = Workspaces()
    app, store = open_app(any_url, workspaces.flow)
    async with app:
        ids = []
        for workspace in FEW[:3]:
            ids += await enqueue(app, "work.step", [None] * 50, workspace=workspace)
        async with working(app, fair=True, slots=30, token_batch=2):
            await workspaces.until(30)
            assert Counter(workspaces.begun) == {"bolt": 15, "cube": 15}
            workspaces.let_go(1)
            await workspaces.until(31)
            assert workspaces.begun[30] == "dent"
            workspaces.let_go()
            await store.ended(*ids)


@in_loop
async def test_a_token_in_use_by_a_claim_is_not_released(any_url: str) -> None:
    """Its last job may end during a claim that returns more jobs under the same token."""
    workspaces = Workspaces()
    app, store = open_app(any_url, workspaces.flow)
    held_up, go_on = asyncio.Event(), asyncio.Event()

    async def hold_up(request: ClaimRequest) -> None:
        if request.held:
            held_up.set()
            await go_on.wait()

    async with app:
        (first,) = await enqueue(app, "work.step", [None], workspace="acme")
        store.before["claim_jobs"] = hold_up
        async with working(app, fair=True, slots=2):
            await workspaces.until(1)
            await held_up.wait()
            others = await enqueue(app, "work.step", [None] * 2, workspace="acme")
            workspaces.let_go(1)
            await store.ended(first)
            taken = await store.store.claim_jobs(ClaimRequest(worker=OTHER, fair=True))
            assert taken.jobs == [], "the token is in use by the claim in progress"
            go_on.set()
            await workspaces.until(3)
            taken = await store.store.claim_jobs(ClaimRequest(worker=OTHER, fair=True))
            assert taken.jobs == []
            workspaces.let_go()
            await store.ended(*others)


@in_loop
async def test_a_failed_claim_releases_its_tokens(any_url: str) -> None:
    workspaces = Workspaces()
    app, store = open_app(any_url, workspaces.flow)
    async with app:
        (first,) = await enqueue(app, "work.step", [None], workspace="acme")
        async with working(app, fair=True, slots=2, poll_s=0.01, quick_poll_s=0.01):
            await workspaces.until(1)
            store.fail("claim_jobs", 2)
            (second,) = await enqueue(app, "work.step", [None], workspace="acme")
            workspaces.let_go()
            await store.ended(first, second)
        await enqueue(app, "work.step", [None], workspace="acme")
        claims = await store.store.claim_jobs(ClaimRequest(worker=OTHER, fair=True))
        assert [job.workspace for job in claims.jobs] == ["acme"]


@pytest.mark.parametrize("most", [0, 4, 5_001])
def test_a_max_token_batch_below_the_batch_is_refused(most: int) -> None:
    with pytest.raises(InvalidInput, match="max_token_batch"):
        WorkerOptions(token_batch=5, max_token_batch=most)


def _tokens(claims: Claims) -> set[Token]:
    return {token for tokens in claims.holds.values() for token in tokens}
