"""Tests that unknown actions and invalid queue names are refused before anything is stored."""

import asyncio
from typing import Any

import pytest

from duly import Context, Duly, Flow, InvalidInput, RetryPolicy, user
from duly.flows.flow import Action, actions_of
from duly.flows.job_options import find_action
from duly.model.jobs import JobId, NewJob, check_queues
from duly.model.stored_jobs import JobFilter
from duly.operate.admin import Admin
from duly.runtime import WorkerOptions
from duly.stores.memory import MemoryStore
from duly.testing.jobs import drain

mail = Flow("mail")
crm = Flow("crm")


@mail.action(retry=RetryPolicy(attempts=9))
async def remind(text: str = "") -> None: ...


@mail.action
async def sweep() -> None: ...


@crm.action(name="sweep")
async def sweep_crm() -> None: ...


ACTIONS = actions_of([mail, crm])
TYPOS = {
    "mail.remnd": r"flow 'mail' has no action 'remnd'; did you mean 'remind'\?",
    "mail.": r"flow 'mail' has no action ''; allowed: remind, sweep",
    "crm.remind": r"flow 'crm' has no action 'remind'; allowed: sweep",
    "remnd": r"this application has no action 'remnd'; did you mean 'remind'\?",
    "sweep": r"action 'sweep' is in several flows; name one: crm.sweep, mail.sweep",
}


@pytest.mark.parametrize("name", TYPOS)
def test_an_unknown_action_of_an_own_flow_is_refused_with_a_suggestion(name: str) -> None:
    async def check() -> None:
        app = Duly("memory:", flows=[mail, crm])
        client: Any = app.client
        ada = app.acting_for(user("ada"))
        for call in (
            lambda: client.enqueue(name, "x"),
            lambda: client.enqueue_many(name, ["x"]),
            lambda: ada.enqueue(name, "x"),
            lambda: app.schedule(name, 3600),
        ):
            with pytest.raises(InvalidInput, match=TYPOS[name]):
                await call()
        for plain in (client.enqueue_in, client.enqueue_many_in):
            with pytest.raises(InvalidInput, match=TYPOS[name]):
                plain(None, name, ["x"])
        assert await app.store.list_jobs(JobFilter()) == []
        await app.close()

    asyncio.run(check())


def test_unknown_actions_in_handlers_are_refused() -> None:
    flow, messages = Flow("work"), list[str]()

    @flow.action
    async def first(ctx: Context) -> None:
        for calls in (ctx, ctx.system):
            with pytest.raises(InvalidInput) as caught:
                await calls.enqueue("work.secnd")
            messages.append(str(caught.value))
        await ctx.enqueue("second")

    @flow.action
    async def second() -> None: ...

    async def check() -> None:
        async with Duly("memory:", flows=[flow]) as app:
            await app.client.enqueue("first")
            assert len((await drain(app)).ids()) == 2

    asyncio.run(check())
    assert messages == ["flow 'work' has no action 'secnd'; did you mean 'second'?"] * 2


@pytest.mark.parametrize("name", ["mail.remind", "remind"])
def test_a_short_name_means_the_only_action_that_has_it(name: str) -> None:
    async def check() -> None:
        async with Duly("memory:", flows=[mail, crm]) as app:
            made = await app.client.enqueue(name, "water")
            job = await app.client.job(made.job_id)
            assert job is not None
            assert (job.action, job.max_attempts) == ("mail.remind", 9)
            ensured = await app.schedule(name, 3600, "water")
            assert (ensured.schedule.flow, ensured.schedule.definition.action) == ("mail", "remind")

    asyncio.run(check())


def test_actions_of_other_applications_are_not_checked() -> None:
    assert find_action("billing.charge", ACTIONS) == ("billing.charge", None)
    assert find_action("anything", {}) == ("anything", None)
    foreign = Flow("billing").action(name="charge")(sweep.function)
    assert isinstance(foreign, Action)
    assert find_action(foreign, ACTIONS) == ("billing.charge", foreign)


@pytest.mark.parametrize("name", ["*", "*mail", "", "line\nbreak", "\x1b[1m", "x" * 256, 5])
def test_invalid_queue_names_are_refused_everywhere(name: Any) -> None:
    admin = Admin(MemoryStore(), actions=ACTIONS)
    flow = Flow("work")
    for call in (
        lambda: NewJob(id=JobId("a"), action="mail.sweep", queue=name),
        lambda: flow.action(queue=name),
        lambda: check_queues([name]),
        lambda: WorkerOptions(queues=(name,)),
        lambda: asyncio.run(admin.pause(name)),
        lambda: asyncio.run(admin.resume(name)),
        lambda: asyncio.run(admin.limit(name, job_limit=1)),
    ):
        with pytest.raises(InvalidInput, match="queue"):
            call()
    assert asyncio.run(admin.queues()) == []


def test_all_queues_are_paused_and_resumed() -> None:
    async def check() -> None:
        async with Duly("memory:", flows=[mail, crm]) as app:
            admin = app.admin
            await app.client.enqueue("remind", "x")
            await admin.pause("slow", "repairs")
            await admin.pause_all("moving", by="ada")
            await app.client.enqueue("remind", "y", queue="later")
            found = {each.queue: (each.is_paused, each.note) for each in await admin.queues()}
            moving = (True, "moving (ada)")
            assert found == {"default": moving, "later": moving, "slow": (True, "repairs")}
            finding = [each for each in (await admin.health()).findings if each.name == "queues"]
            assert [each.text[:14] for each in finding] == ["all are paused"]
            assert (await drain(app, queues=["default", "later"])).ids() == []
            await admin.resume_all()
            assert await admin.all_paused() is None
            found = {each.queue: (each.is_paused, each.note) for each in await admin.queues()}
            nothing = (False, None)
            assert found == {"default": nothing, "later": nothing, "slow": (True, "repairs")}
            assert len((await drain(app, queues=["default", "later"])).ids()) == 2

    asyncio.run(check())
