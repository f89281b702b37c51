"""Jobs that no live worker serves: which queues a worker serves, and where the rest is reported."""

import asyncio
import json
import logging
import sys
from types import ModuleType
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from duly.app import Duly
from duly.cli import main
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.jobs import WorkerId
from duly.model.queues import WorkerInfo
from duly.runtime import WorkerOptions
from duly.runtime.unserved_log import LOOK_PERIOD_S, REPEAT_S, UnservedLog
from duly.testing.jobs import drain
from duly.web.dashboard.site import dashboard_app
from duly.web.operators.auth import AuthOptions, OperatorAuth
from tests.integration.working import enqueue, in_loop, open_app, working

HOST = "http://127.0.0.1"


def a_flow() -> Flow:
    flow = Flow("work")

    @flow.action
    async def plain(input: object, ctx: Context) -> None:  # noqa: A002
        """Nothing."""

    @flow.action(queue="mail")
    async def send(input: object, ctx: Context) -> None:  # noqa: A002
        """Nothing."""

    return flow


@in_loop
async def test_a_worker_serves_every_queue_that_an_action_declares(any_url: str) -> None:
    app, store = open_app(any_url, a_flow())
    async with app:
        jobs = [*await enqueue(app, "work.plain", [1]), *await enqueue(app, "work.send", [2])]
        async with working(app):
            await store.ended(*jobs)
            await store.until("beat")
            (worker,) = await app.store.list_workers()
    assert worker.queues == ("default", "mail")
    assert worker.actions == ("work.plain", "work.send")


@in_loop
async def test_named_queues_are_the_only_ones_served() -> None:
    app, _ = open_app("memory:", a_flow())
    async with app:
        assert app.worker(WorkerOptions(queues=("mail",))).queues == ("mail",)
        assert app.worker(WorkerOptions(slots=2)).queues == ("default", "mail")


@in_loop
async def test_drain_runs_jobs_of_every_declared_queue() -> None:
    app, _ = open_app("memory:", a_flow())
    async with app:
        await enqueue(app, "work.send", [1])
        assert len(await drain(app, queues=["default"])) == 0
        assert len(await drain(app)) == 1


@pytest.mark.parametrize(
    ("options", "queues"),
    [([], None), (["--queue", "a", "--queue", "b"], ("a", "b"))],
)
def test_commands_leave_the_queues_to_the_application_unless_told(
    options: list[str], queues: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def serve(_app: Duly, worker: WorkerOptions, *_: object) -> None:
        asked.append(worker.queues)

    module = ModuleType("served_app")
    module.__dict__["app"] = Duly("memory:")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Duly, "serve", serve)
    for command in (["run", "served_app:app", "--roles", "worker"], ["worker", "served_app:app"]):
        result = CliRunner().invoke(main, [*command, *options])
        assert result.exit_code == 0, result.output
    assert asked == [queues, queues]


def a_worker(*queues: str) -> WorkerInfo:
    actions = ("work.plain", "work.send")
    return WorkerInfo(WorkerId("w"), "host", 1, queues, slots=4, actions=actions)


async def _answers(app: Duly) -> tuple[str, str]:
    """Return the overview page and the metrics."""
    auth = OperatorAuth(AuthOptions(development_host="127.0.0.1"))
    transport = httpx.ASGITransport(dashboard_app(app, auth), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
        return (await client.get("/")).text, (await client.get("/metrics")).text


@in_loop
async def test_unserved_jobs_are_bad_in_health_and_shown(any_url: str) -> None:
    """Covers a queue without a worker and an action that no worker has."""
    app, _ = open_app(any_url, a_flow())
    async with app:
        await app.store.beat(a_worker("default", "mail"))
        assert (await app.admin.health()).level == "ok"
        await enqueue(app, "work.plain", [1, 2], queue="bulk")
        await enqueue(app, "gone.away", [3])
        health = await app.admin.health()
        (found,) = [each for each in health.findings if each.level != "ok"]
        assert (health.level, found.name, found.level) == ("bad", "unserved", "bad")
        assert "2 jobs in queue 'bulk' (action 'work.plain')" in found.text
        assert "1 job of action 'gone.away' in queue 'default'" in found.text
        page, metrics = await _answers(app)
        assert "Served by no worker" in page
        assert 'duly_jobs_unserved{action="work.plain",queue="bulk"} 2.0' in metrics
        assert 'duly_jobs_unserved{action="gone.away",queue="default"} 1.0' in metrics


@in_loop
async def test_served_jobs_have_no_tile_and_no_metric() -> None:
    app, _ = open_app("memory:", a_flow())
    async with app:
        await app.store.beat(a_worker("default", "mail"))
        await enqueue(app, "work.plain", [1, 2])
        page, metrics = await _answers(app)
        assert "Served by no worker" not in page
        assert "duly_jobs_unserved{" not in metrics


@in_loop
async def test_a_keeper_warns_of_unserved_jobs(caplog: pytest.LogCaptureFixture) -> None:
    """The first look logs nothing, as a worker may be about to register; later ones log rarely."""
    app, _ = open_app("memory:", a_flow())
    async with app:
        await enqueue(app, "work.plain", [1], queue="bulk")
        looking = UnservedLog(app.store, 30_000)
        with caplog.at_level(logging.WARNING, "duly"):
            told = []
            for now in (0, LOOK_PERIOD_S, 2 * LOOK_PERIOD_S, LOOK_PERIOD_S + REPEAT_S):
                await looking.look(now)
                told.append(len(caplog.records))
            await app.store.beat(a_worker("bulk"))
            await looking.look(10 * REPEAT_S)
            await looking.look(20 * REPEAT_S)
    assert told == [0, 1, 1, 2]
    assert len(caplog.records) == 2
    record = caplog.records[0]
    assert "no live worker serves 1 job in queue 'bulk'" in record.getMessage()
    assert (record.__dict__["event"], record.__dict__["queue"]) == ("keeper.unserved", "bulk")


def test_the_command_fails_where_jobs_are_unserved(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/d.db"

    async def fill() -> None:
        async with Duly(url, flows=[a_flow()]) as app:
            await app.store.beat(a_worker("default"))
            await enqueue(app, "work.send", [1])

    asyncio.run(fill())
    for command in ("health", "doctor"):
        result = CliRunner().invoke(main, [command, "--url", url, "--json"])
        findings = {each["name"]: each["level"] for each in json.loads(result.output)["findings"]}
        assert (result.exit_code, findings["unserved"]) == (1, "bad"), result.output
