"""Tests that workspaces cannot be named like the workspace of a user."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from duly import Duly, Flow, InvalidInput, Principal, cron, user, workspace
from duly.dispatch.ids import read_id
from duly.flows.collections import ResourceKind
from duly.model.principals import principal_of
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Definition, ScheduleId
from duly.model.scopes import SYSTEM, Scope, check_workspace, place_of_jobs, workspace_of
from duly.model.stored_jobs import JobFilter
from duly.testing.conformance.jobs.samples import a_job
from duly.triggers import every

mail = Flow("mail")


@dataclass
class Note:
    text: str = ""


NOTES = ResourceKind("notes", Note)


@mail.action
async def send(value: object = None) -> None: ...


RESERVED = ["user:ada", "user:", "workspace:acme", "workspace:", "system"]
FREE = ["acme", "users:ada", "User:ada", "systems", "the user:ada"]


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names_are_refused(name: str) -> None:
    scope = Scope("workspace", name)

    async def check() -> None:
        async with Duly("memory:", flows=[mail]) as app:
            schedules = app.schedules(mail)
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: app.client.enqueue(send, workspace=name),
                lambda: app.client.enqueue(send, workspace=name, scope=user("bob")),
                lambda: app.client.enqueue(send, scope=scope),
                lambda: app.client.enqueue(send, scope=f"workspace:{name}"),
                lambda: app.client.enqueue_many(send, [1], workspace=name, scope=user("bob")),
                lambda: schedules.of(scope).create("a", every(hours=1), action="send"),
                lambda: schedules.of(scope).ensure("a", every(hours=1), action="send"),
                lambda: app.schedule(send, 3600, workspace=name),
                lambda: NOTES.on(app.store).of(scope).create("a", Note()),
            ]
            for call in calls if name != "system" else calls[1:]:
                with pytest.raises(InvalidInput, match="is reserved"):
                    await call()
            with pytest.raises(InvalidInput, match="is reserved"):
                schedules.of(user("bob"), workspace=name)
            with pytest.raises(InvalidInput, match="is reserved"):
                app.acting_for(scope)
            assert await app.store.list_jobs(JobFilter()) == []

    asyncio.run(check())
    for make in (
        workspace,
        lambda each: Principal("bob", each),
        lambda each: Principal(None, each),
    ):
        with pytest.raises(InvalidInput, match="is reserved"):
            make(name)


@pytest.mark.parametrize("name", FREE)
def test_other_names_are_accepted(name: str) -> None:
    assert check_workspace(name) == name
    assert place_of_jobs(user("ada"), name) == place_of_jobs(workspace(name)) == name
    assert Principal("ada", name).workspace == name


def test_workspaces_of_users_and_the_system_are_separate() -> None:
    assert place_of_jobs(user("ada"), "user:ada") == workspace_of(user("ada")) == "user:ada"
    assert place_of_jobs(SYSTEM, "system") == "system"
    with pytest.raises(InvalidInput, match="is reserved"):
        place_of_jobs(user("bob"), "user:ada")
    with pytest.raises(InvalidInput, match="is reserved"):
        place_of_jobs(user("bob"), "system")


def test_keys_of_a_user_cannot_be_taken_by_a_workspace() -> None:
    async def check() -> None:
        async with Duly("memory:", flows=[mail]) as app:
            made = await app.client.enqueue(send, 1, scope=user("ada"), key="k")
            with pytest.raises(InvalidInput, match="is reserved"):
                await app.client.enqueue(send, 1, scope="workspace:user:ada", key="k")
            again = await app.client.enqueue(send, 1, scope=user("ada"), key="k")
            assert (again.job_id, again.created) == (made.job_id, False)

    asyncio.run(check())


def test_data_stored_under_reserved_names_stays_readable() -> None:
    """Schedules and jobs of a release that allowed these names can be read, paused and deleted."""
    scope = Scope.parse("workspace:user:ada")
    assert principal_of(scope).scope == scope
    assert principal_of("user:bob", "user:ada").workspace == "user:ada"
    target = read_id("workspace%3Auser%3Aada/a")
    assert target is not None
    assert target.key == (scope, "a")
    assert Definition.parse(
        {"trigger": "0 9 * * *", "action": "send", "workspace": "user:ada"}
    ).workspace

    async def check() -> None:
        async with Duly("memory:", flows=[mail]) as app:
            key = ScheduleKey("mail", str(scope), "a")
            definition = Definition(cron("0 9 * * *"), "send")
            write = ScheduleWrite(key, ScheduleId("sch_a"), definition)
            (written,) = await app.store.put_schedules([write])
            assert isinstance(written, ScheduleWritten)
            old = app.schedules(mail).of(scope)
            assert [each.name for each in await old.list()] == ["a"]
            assert (await app.admin.schedules.pause("sch_a")).state == "paused"
            assert (await app.admin.schedules.run_now("sch_a")).job_id is not None
            assert await old.delete("a")
            await app.store.insert_jobs([a_job("b", scope=str(scope), workspace="user:ada")])
            job = await app.client.job(a_job("b").id)
            assert job is not None
            assert principal_of(job.scope, job.workspace).workspace == "user:ada"

    asyncio.run(check())
