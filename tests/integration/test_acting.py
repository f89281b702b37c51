"""`acting_for()` is confined: no call reaches jobs, schedules or documents of other owners."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from duly import Conflict, Context, Duly, Flow, InvalidInput, NotFound, Principal, every
from duly.flows.acting import Acting
from duly.flows.collections import ResourceKind
from duly.model.jobs import JobId, JobState
from duly.model.scopes import SYSTEM, Scope, user, workspace
from duly.model.stored_jobs import Enqueued, JobFilter
from duly.testing.jobs import drain
from tests.integration.working import in_loop

ADA = Principal("ada")
ADA_AT_WORK = Principal("ada", "acme")
OTHERS: list[Scope | str] = [user("bob"), "user:bob", workspace("acme"), SYSTEM, "system"]


def flow_of_work() -> Flow:
    flow = Flow("work")

    @flow.action
    async def echo(value: object) -> object:
        return value

    return flow


@dataclass
class Note:
    text: str


NOTES = ResourceKind("notes", Note)


@pytest.mark.parametrize("other", OTHERS, ids=str)
@pytest.mark.parametrize("who", [ADA, ADA_AT_WORK], ids=["alone", "at work"])
@in_loop
async def test_enqueuing_for_another_scope_is_refused(
    clean_url: str, who: Principal, other: Any
) -> None:
    async with Duly(clean_url, flows=[flow_of_work()]) as app:
        with pytest.raises(InvalidInput, match=r"user:ada is acted for .* omit scope="):
            await app.acting_for(who).enqueue("work.echo", 1, scope=other)
        assert await app.store.list_jobs(JobFilter()) == []


@pytest.mark.parametrize(
    ("who", "other"),
    [
        (ADA, "acme"),
        (ADA, "system"),
        (ADA, "user:bob"),
        (ADA_AT_WORK, "globex"),
        (ADA_AT_WORK, "user:ada"),
        (Principal(None, "acme"), "globex"),
    ],
)
@in_loop
async def test_enqueuing_into_another_workspace_is_refused(
    clean_url: str, who: Principal, other: str
) -> None:
    async with Duly(clean_url, flows=[flow_of_work()]) as app:
        with pytest.raises(InvalidInput, match=r"count in .* omit workspace="):
            await app.acting_for(who).enqueue("work.echo", 1, workspace=other)
        with pytest.raises(InvalidInput, match="omit workspace="):
            await app.acting_for(who).enqueue("work.echo", 1, workspace=other, scope=who.scope)
        assert await app.store.list_jobs(JobFilter()) == []


@in_loop
async def test_own_scope_and_workspace_are_accepted(clean_url: str) -> None:
    async with Duly(clean_url, flows=[flow_of_work()]) as app:
        ada = app.acting_for(ADA_AT_WORK)
        made = [
            await ada.enqueue("work.echo", 1, scope=user("ada"), workspace="acme"),
            await ada.enqueue("work.echo", 1, scope="user:ada", correlation_id="c", priority=3),
            await ada.enqueue("work.echo", 1, workspace=None),
        ]
        jobs = [await app.client.job(each.job_id) for each in made]
        found = [(job.scope, job.workspace) for job in jobs if job is not None]
        assert found == [("user:ada", "acme")] * 3


@in_loop
async def test_the_system_starts_work_for_others(clean_url: str) -> None:
    async with Duly(clean_url, flows=[flow_of_work()]) as app:
        made = await app.acting_for(SYSTEM).enqueue("work.echo", 1, scope=user("bob"))
        job = await app.client.job(made.job_id)
        assert job is not None
        assert (job.scope, job.workspace) == ("user:bob", "user:bob")


async def foreign_jobs(app: Duly) -> list[JobId]:
    """Enqueue jobs that do not belong to Ada, one of them in the workspace she works in."""
    made: list[Enqueued] = [
        await app.client.enqueue("work.echo", 1, scope=user("bob")),
        await app.client.enqueue("work.echo", 1, scope=user("bob"), workspace="acme"),
        await app.client.enqueue("work.echo", 1, scope=workspace("acme")),
        await app.client.enqueue("work.echo", 1, scope=user("Ada")),
        await app.client.enqueue("work.echo", 1),
    ]
    return [each.job_id for each in made]


async def answer(call: Callable[[JobId], Awaitable[object]], job_id: JobId) -> str:
    """Return the message of the error that a call raises, without the id."""
    try:
        return repr(await call(job_id))
    except (NotFound, Conflict) as error:
        return f"{type(error).__name__}: {error}".replace(job_id, "ID")


@pytest.mark.parametrize("who", [ADA, ADA_AT_WORK], ids=["alone", "at work"])
@pytest.mark.parametrize("is_done", [False, True], ids=["queued", "succeeded"])
@in_loop
async def test_jobs_of_others_look_unknown(clean_url: str, who: Principal, is_done: bool) -> None:
    async with Duly(clean_url, flows=[flow_of_work()]) as app:
        others = await foreign_jobs(app)
        if is_done:
            await drain(app)
        before = [await app.client.job(each) for each in others]
        ada = app.acting_for(who)
        for call in (ada.job, ada.result, ada.cancel):
            unknown = await answer(call, JobId("job_nowhere"))
            assert [await answer(call, each) for each in others] == [unknown] * len(others)
        assert [await app.client.job(each) for each in others] == before


@in_loop
async def test_own_jobs_are_read_and_cancelled(clean_url: str) -> None:
    async with Duly(clean_url, flows=[flow_of_work()]) as app:
        agent = app.acting_for(user("ada"), by="agent:planner")
        first = (await agent.enqueue("work.echo", {"n": 1})).job_id
        with pytest.raises(Conflict, match="queued and has no result"):
            await agent.result(first)
        await drain(app)
        job = await agent.job(first)
        assert job is not None
        assert (job.state, await agent.result(first)) == (JobState.SUCCEEDED, {"n": 1})
        with pytest.raises(Conflict, match="succeeded and cannot be cancelled"):
            await agent.cancel(first)
        second = (await agent.enqueue("work.echo", 2)).job_id
        assert (await agent.cancel(second, reason="not needed")).state is JobState.CANCELLED
        event = (await app.store.job_events(second))[-1]
        assert (event.actor, event.reason) == ("agent:planner", "not needed")


@in_loop
async def test_a_workspace_has_its_own_jobs_and_not_those_of_its_users(clean_url: str) -> None:
    async with Duly(clean_url, flows=[flow_of_work()]) as app:
        acme = app.acting_for(workspace("acme"))
        own = await acme.enqueue("work.echo", 1)
        assert await acme.job(own.job_id) is not None
        for other in await foreign_jobs(app):
            job = await app.client.job(other)
            assert job is not None
            assert (await acme.job(other) is None) == (job.scope != "workspace:acme")


@in_loop
async def test_handlers_are_confined_too(clean_url: str) -> None:
    flow, seen = flow_of_work(), list[object]()

    @flow.action
    async def look(other: str, ctx: Context) -> None:
        for who in (ctx.user, ctx.system):
            seen.append(await who.job(JobId(other)))
        own = await ctx.enqueue("work.echo", 5)
        seen.append(getattr(await ctx.user.job(own.job_id), "scope", None))
        seen.append((await ctx.user.cancel(own.job_id)).state)
        for calls in (ctx, ctx.user):
            with pytest.raises(InvalidInput, match="omit scope="):
                await calls.enqueue("work.echo", 1, scope=user("bob"))
        with pytest.raises(NotFound, match="does not exist"):
            await ctx.user.result(JobId(other))

    async with Duly(clean_url, flows=[flow]) as app:
        other = await app.client.enqueue("work.echo", 1, scope=user("bob"))
        made = await app.acting_for(user("ada")).enqueue(look, other.job_id)
        ended = await drain(app)
        assert made.job_id in ended.ids(JobState.SUCCEEDED)
        assert seen == [None, None, "user:ada", JobState.CANCELLED]


@in_loop
async def test_schedules_and_documents_are_confined(clean_url: str) -> None:
    flow = flow_of_work()
    async with Duly(clean_url, flows=[flow]) as app:
        ada: Acting = app.acting_for(ADA)
        bob = app.acting_for(user("bob"))
        made = await bob.schedules(flow).create("report", every(hours=1), action="echo", input=1)
        await bob.resources(NOTES).create("one", Note("mine"))
        mine = ada.schedules(flow)
        assert (await mine.get("report"), await mine.list(), await mine.delete("report")) == (
            None,
            [],
            False,
        )
        with pytest.raises(NotFound):
            await mine.update("report", enabled=False)
        unknown: Any = {"workspace": "acme"}
        with pytest.raises(InvalidInput, match="workspace"):
            await mine.create("x", every(hours=1), action="echo", **unknown)
        notes = ada.resources(NOTES)
        assert (await notes.get("one"), await notes.list(), await notes.delete("one")) == (
            None,
            [],
            False,
        )
        assert (await bob.schedules(flow).get("report")) == made
