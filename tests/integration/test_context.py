"""The client, schedules and documents of a handler's context, and the principal they act as."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly.app import Duly
from duly.errors import InvalidInput
from duly.flows.collections import ResourceCollection, ResourceKind
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.jobs import Job, JobState
from duly.model.principals import Principal
from duly.model.scopes import SYSTEM, Scope, user, workspace
from duly.model.stored_jobs import JobFilter
from duly.testing.clock import ManualClock
from duly.testing.jobs import drain
from duly.triggers import cron, every
from tests.integration.working import in_loop, open_app

START = datetime(2026, 3, 2, 8, tzinfo=UTC)  # a Monday
ADA = Principal("ada")


@dataclass
class Note:
    text: str


NOTES = ResourceKind("notes", Note)


async def only_job(app: Duly, action: str) -> Job:
    (job,) = await app.store.list_jobs(JobFilter(action=action))
    return job


async def run_due(app: Duly) -> None:
    await app.planner().run_once()
    await drain(app)


@in_loop
async def test_an_action_makes_a_schedule_of_its_user(clean_url: str) -> None:
    """It belongs to the user's scope, and its jobs run as that user."""
    flow, seen = Flow("mail"), list[Any]()

    @flow.action
    async def send_digest(digest: object, ctx: Context) -> None:
        await ctx.user.resources(NOTES).create("last", Note("sent"))
        seen.append((digest, ctx.principal, ctx.schedule))

    @flow.action
    async def subscribe_weekly(digest: object, ctx: Context) -> None:
        await ctx.user.schedules.create(
            "weekly-digest", cron("0 9 * * MON"), action=send_digest, input=digest
        )

    clock = ManualClock(START)
    app = Duly(clean_url, flows=[flow], clock=clock)
    async with app:
        await app.acting_for(user("ada")).enqueue(subscribe_weekly, {"to": "ada"})
        await drain(app)
        made = await app.schedules(flow).of(user("ada")).get("weekly-digest")
        assert made is not None
        assert [event.by for event in await app.store.schedule_events(made.id)] == ["user:ada"]
        clock.advance(hours=1)
        await run_due(app)
        ((digest, principal, occurrence),) = seen
        assert (digest, principal) == ({"to": "ada"}, ADA)
        assert (occurrence.schedule_id, occurrence.name, occurrence.flow) == (
            made.id,
            "weekly-digest",
            "mail",
        )
        assert occurrence.nominal_at == occurrence.run_at == START + timedelta(hours=1)
        job = await only_job(app, "mail.send_digest")
        assert (job.scope, job.workspace, job.id) == ("user:ada", "user:ada", occurrence.job_id)
        notes = ResourceCollection(app.store, "notes", Note)
        assert await notes.of(user("ada")).get("last") is not None
        assert await notes.of(SYSTEM).get("last") is None


@in_loop
async def test_a_user_carries_the_workspace_along(clean_url: str) -> None:
    """Covers the call, the schedule, its job and the jobs that one enqueues."""
    flow, seen = Flow("mail"), list[Principal]()

    @flow.action
    async def send(ctx: Context) -> None:
        seen.append(ctx.principal)
        if ctx.schedule is not None:
            await ctx.enqueue(send)
            await ctx.workspace.schedules.ensure("shared", every(hours=1), action=send)

    clock = ManualClock(START)
    app = Duly(clean_url, flows=[flow], clock=clock)
    ada = Principal("ada", "acme", ("admin",))
    async with app:
        mine = app.acting_for(ada).schedules(flow)
        made = await mine.create("hourly", every(hours=1), action=send)
        assert made.definition.workspace == "acme"
        await mine.update("hourly", description="every hour")
        clock.advance(hours=1)
        await run_due(app)
        assert seen == [Principal("ada", "acme")] * 2
        jobs = await app.store.list_jobs(JobFilter(workspace="acme"))
        assert {job.scope for job in jobs} == {"user:ada"}
        shared = await app.schedules(flow).of(workspace("acme")).get("shared")
        assert shared is not None
        assert shared.definition.workspace is None
        clock.advance(hours=1)
        await run_due(app)
        assert Principal(None, "acme") in seen


@in_loop
async def test_an_agent_acts_for_its_user(clean_url: str) -> None:
    """The user owns the schedule, its job runs as the user, and its events name the agent."""
    flow, seen = Flow("leads"), list[Principal]()

    @flow.action
    async def follow_up(lead: object, ctx: Context) -> None:
        seen.append(ctx.principal)

    clock = ManualClock(START)
    app = Duly(clean_url, flows=[flow], clock=clock)
    async with app:
        agent = app.acting_for(user("u_7"), by="agent:planner")
        made = await agent.schedules("leads").create(
            "followup-456", every(hours=1), action=follow_up, input={"lead": 456}
        )
        assert str(made.scope) == "user:u_7"
        assert [each.by for each in await app.store.schedule_events(made.id)] == ["agent:planner"]
        clock.advance(hours=1)
        await run_due(app)
        assert seen == [Principal("u_7")]
        assert await agent.schedules(flow).delete("followup-456")
        with pytest.raises(InvalidInput, match="by"):
            app.acting_for(user("u_7"), by="")
        with pytest.raises(InvalidInput, match=r"acting for 'u_7'; pass user\(id\)"):
            app.acting_for("u_7")  # type: ignore[arg-type]


@in_loop
async def test_what_is_enqueued_belongs_to_the_same_principal(clean_url: str) -> None:
    flow = Flow("work")

    @flow.action
    async def first(ctx: Context) -> None:
        await ctx.enqueue("work.second", {"n": 1})
        await ctx.system.enqueue("work.third")
        await ctx.system.enqueue("work.fourth", scope=user("bob"), correlation_id="other")

    for name in ("second", "third", "fourth"):
        flow.action(name=name)(ignore)
    app = Duly(clean_url, flows=[flow])
    async with app:
        await app.client.enqueue(
            first, scope=user("ada"), workspace="acme", correlation_id="order-1"
        )
        await drain(app)
        found = [await only_job(app, f"work.{name}") for name in ("second", "third", "fourth")]
        assert [(job.scope, job.workspace, job.correlation_id) for job in found] == [
            ("user:ada", "acme", "order-1"),
            ("system", "system", "order-1"),
            ("user:bob", "user:bob", "other"),
        ]


async def ignore(value: object) -> None:
    """Return an action that takes anything and does nothing."""


@in_loop
async def test_a_sync_handler_has_the_same_calls(clean_url: str) -> None:
    flow, seen = Flow("work"), list[Any]()

    @flow.action
    def subscribe(ctx: Context) -> str:
        made = ctx.sync.user.schedules.create("hourly", every(hours=1), action=subscribe)
        ctx.sync.user.resources(NOTES).create("one", Note("by a thread"))
        seen.append(ctx.sync.enqueue("work.other", 5).created)
        return str(made.scope)

    flow.action(name="other")(ignore)
    app, store = open_app(clean_url, flow)
    loops: list[object] = []

    async def note_loop(*_: object) -> None:
        loops.append(asyncio.get_running_loop())

    store.before["put_schedules"] = note_loop
    async with app:
        asked = await app.client.enqueue(subscribe, scope=user("ada"))
        assert asked.job_id in (await drain(app)).ids()
        assert await app.client.result(asked.job_id) == "user:ada"
        assert seen == [True]
        assert loops == [asyncio.get_running_loop()], "that of the worker"
        assert (await only_job(app, "work.other")).scope == "user:ada"
        assert await NOTES.on(app.store).of(user("ada")).get("one") is not None


@in_loop
async def test_sync_calls_from_an_async_handler_are_refused(clean_url: str) -> None:
    flow = Flow("work")

    @flow.action
    async def wrong(ctx: Context) -> None:
        ctx.sync.enqueue(wrong)

    app = Duly(clean_url, flows=[flow])
    async with app:
        await app.client.enqueue(wrong)
        (end,) = (await drain(app)).ends
        assert "await the call itself" in (end.error or "")


@pytest.mark.parametrize(
    ("scope", "reached", "words"),
    [
        (SYSTEM, "user", "runs as system, which is not a user"),
        (workspace("acme"), "user", "runs as workspace:acme, which is not a user"),
        (user("ada"), "workspace", "has no workspace"),
        (SYSTEM, "workspace", "has no workspace"),
    ],
)
@in_loop
async def test_a_missing_user_or_workspace_is_refused(
    scope: Scope, reached: str, words: str
) -> None:
    flow = Flow("work")

    @flow.action
    async def reach(ctx: Context) -> None:
        getattr(ctx, reached)

    app = Duly("memory:", flows=[flow])
    async with app:
        await app.client.enqueue(reach, scope=scope)
        (end,) = (await drain(app)).ends
        assert words in (end.error or "")


@in_loop
async def test_no_schedule_means_none() -> None:
    flow, seen = Flow("work"), list[Any]()

    @flow.action
    async def look(ctx: Context) -> None:
        seen.append(ctx.schedule)

    app = Duly("memory:", flows=[flow])
    async with app:
        await app.client.enqueue(look)
        assert len((await drain(app)).ids(JobState.SUCCEEDED)) == 1
        assert seen == [None]


def test_acting_for_somebody_works_from_sync_code(clean_url: str) -> None:
    flow = Flow("work")
    flow.action(name="other")(ignore)
    app = Duly(clean_url, flows=[flow])
    acting = app.sync.acting_for(user("ada"), by="agent:planner")
    made = acting.schedules("work").create("n", every(hours=1), action="other")
    assert (made.definition.action, acting.enqueue("work.other", 1).created) == ("other", True)
    app.sync.close()
