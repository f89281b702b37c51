"""The scenario: every kind of job and schedule, and every call, each with secrets in it."""

from __future__ import annotations

import asyncio
import hmac
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import httpx

from duly import Duly, JobId, ResourceCollection, cron, every, once, user
from tests.leaks.application import SECRETS, Login, app
from tests.leaks.product import APP, Process

DEBUG = ("--log-level", "debug")
BEARER = {"authorization": f"Bearer {SECRETS['dispatch-secret']}"}
ADA = {"x-user": "ada"}
SCHEDULES = ("daily", "often", "own", "posted", "resting", "unheard")
"""Schedules of user `ada` in the flow `work`."""


@dataclass
class Project:
    """The resource that a delivery names."""

    code: str


@dataclass
class ScenarioOutcome:
    """The jobs and the HTTP answers of a run of the scenario."""

    jobs: dict[str, JobId]
    """By action, or by what was done to them."""
    answers: dict[str, str] = field(default_factory=dict)
    """Bodies of the answers to requests other than GET, by method and path."""


def from_job(note: str) -> Login:
    """Return an input with a secret under each kind of name."""
    nested = {"settings": [{"dbPassword": SECRETS["job-nested"]}], "free": SECRETS["job-nested"]}
    return Login(note, SECRETS["job-password"], SECRETS["job-ssn"], nested)


def from_schedule(note: str) -> Login:
    """Return the same for a schedule."""
    return Login(note, SECRETS["schedule-token"], SECRETS["schedule-ssn"])


def fill(url: str) -> ScenarioOutcome:
    """Create schedules and jobs before anything runs."""
    return asyncio.run(_fill(url))


async def _fill(url: str) -> ScenarioOutcome:
    async with Duly(url, flows=app.flows) as setup:
        projects = ResourceCollection(setup.store, "projects", Project, indexes=["code"])
        await projects.of(user("ada")).create("site", Project("p-1"))
        mine = setup.schedules("work").of(user("ada"))
        nine, description = cron("0 9 * * *"), f"for {SECRETS['schedule-ssn']}"
        often = every(seconds=1)
        await mine.create("often", often, action="fail", input=from_schedule("often"), max_runs=2)
        for name, action in (("daily", "succeed"), ("unheard", "succeed")):
            given = from_schedule(name)
            await mine.create(name, nine, action=action, input=given, description=description)
        await mine.create("resting", nine, action="fail", input=from_schedule("resting"))
        await mine.pause("resting", f"leaked {SECRETS['schedule-token']}")
        soon = once(datetime.now(UTC) + timedelta(seconds=1))
        await mine.create(
            "posted", soon, action="succeed", input=from_schedule("posted"), hand_over="http"
        )
        jobs = {"cancelled": await _enqueue(setup, "succeed", "nobody")}
        await setup.admin.cancel(jobs["cancelled"], reason=f"knew {SECRETS['job-password']}")
        for action in ("succeed", "fail", "stumble", "wait_long", "hold"):
            jobs[action] = await _enqueue(setup, action)
        jobs["queued"] = await _enqueue(setup, "succeed", "nobody")
        await setup.admin.pause("nobody", "repairs", by="ada")
        await setup.store.acquire_lock("nightly", "ada", 600_000)
    return ScenarioOutcome(jobs)


async def _enqueue(setup: Duly, action: str, queue: str | None = None) -> JobId:
    queue = app.actions[f"work.{action}"].queue if queue is None else queue
    made = await setup.client.enqueue(f"work.{action}", from_job(action), queue=queue)
    return made.job_id


def play(outcome: ScenarioOutcome, base_url: str, url: str) -> dict[str, list[str]]:
    """Make every call, run all jobs to their end, and return the output of the processes."""
    with httpx.Client(base_url=base_url, timeout=30) as client:
        _call(client, outcome)
    lines: dict[str, list[str]] = {}
    words = ("tick", APP, "--url", base_url, "--period", "0.2", "--log", "text", *DEBUG)
    with Process(words, url) as tick:
        tick.until(lambda found: any(line.startswith("posted 1: 1 accepted") for line in found))
    lines["tick"] = tick.lines
    jobs, delivered = outcome.jobs, outcome.jobs["deployed"]
    with Process(("worker", APP, "--log", "json", *DEBUG), url) as worker:
        worker.until_attempts(
            {(jobs[name], "succeeded") for name in ("succeed", "stumble", "dispatched")}
            | {(jobs[name], "failed") for name in ("fail", "stumble", "wait_long")}
            | {(delivered, "failed")}
        )
        # The job, the delivery, and the first occurrence of the schedule.
        worker.until(lambda found: sum('"job.dead"' in line for line in found) >= 3)
        assert worker.end() == 0
    lines["worker"] = worker.lines
    return lines


def _call(client: httpx.Client, outcome: ScenarioOutcome) -> None:
    """Make every call other than GET."""
    own = {"note": "own", "password": SECRETS["api-password"], "ssn": SECRETS["schedule-ssn"]}
    path = "/api/flows/work/my/schedules"
    new = {"name": "own", "trigger": "0 8 * * *", "action": "succeed", "input": own}
    for method, place, body in (
        ("POST", path, new),
        ("PATCH", f"{path}/own", {"description": f"password {SECRETS['api-password']}"}),
        ("POST", f"{path}/own/pause", {"note": f"password {SECRETS['api-password']}"}),
        ("POST", f"{path}/own/resume", {}),
        ("PATCH", f"{path}/own", {"input": own | {"more": 5}}),
        ("POST", "/api/flows/work/my/preview", {"trigger": "0 8 * * *"}),
    ):
        _answered(client, outcome, method, place, json.dumps(body).encode(), ADA)
    body = {"project": "p-1", "ssn": SECRETS["webhook-ssn"]}
    for name, key in (("deployed", "webhook-key"), ("broken", "webhook-raised")):
        sent = json.dumps(body | {"api_key": SECRETS[key]}).encode()
        signature = hmac.new(SECRETS["sender-secret"].encode(), sent, "sha256").hexdigest()
        headers = {"x-signature": signature}
        _answered(client, outcome, "POST", f"/api/flows/work/webhooks/{name}", sent, headers)
    for flow, name in (
        *(("work", "daily"), ("work", "unheard"), ("work", "tidy")),
        *(("rough", "unresolved"), ("rough", "computed")),
    ):
        place = f"/api/flows/{flow}/schedules/ada/{name}/dispatch"
        _answered(client, outcome, "POST", place, b"", BEARER)
    _answered(client, outcome, "POST", "/api/nowhere", b"", {"x-user": "broken"})
    outcome.jobs["deployed"] = JobId(
        json.loads(outcome.answers["POST /api/flows/work/webhooks/deployed"])["requestIds"][0]
    )
    dispatched = outcome.answers["POST /api/flows/work/schedules/ada/daily/dispatch"]
    outcome.jobs["dispatched"] = JobId(json.loads(dispatched)["requestId"])


def _answered(
    client: httpx.Client,
    outcome: ScenarioOutcome,
    method: str,
    place: str,
    body: bytes,
    headers: dict[str, str],
) -> None:
    answer = client.request(method, place, content=body, headers=headers)
    asked = f"{method} {place}"
    outcome.answers[asked] = outcome.answers.get(asked, "") + answer.text
