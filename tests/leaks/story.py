"""What happens in the office: everything that can happen to a job, with secrets in all of it."""

from __future__ import annotations

import asyncio
import hmac
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import httpx

from duly import Duly, JobId, ResourceCollection, cron, every, once, user
from tests.leaks.office import SECRETS, Login, app
from tests.leaks.product import APP, Process

DEBUG = ("--log-level", "debug")
BEARER = {"authorization": f"Bearer {SECRETS['dispatch-secret']}"}
ADA = {"x-user": "ada"}
SCHEDULES = ("daily", "often", "own", "posted", "resting", "unheard")
"""Names of ada's, in the flow `work`."""


@dataclass
class Project:
    """What a delivery is about."""

    code: str


@dataclass
class Played:
    """What was made, and what was answered meanwhile."""

    jobs: dict[str, JobId]
    """By action; of those without one, by what happened to them."""
    answers: dict[str, str] = field(default_factory=dict)
    """Bodies of answers to what is not a GET, by what was asked."""


def from_job(note: str) -> Login:
    """A payload with a secret under each kind of name."""
    nested = {"settings": [{"dbPassword": SECRETS["job-nested"]}], "free": SECRETS["job-nested"]}
    return Login(note, SECRETS["job-password"], SECRETS["job-ssn"], nested)


def from_schedule(note: str) -> Login:
    """The same of a schedule."""
    return Login(note, SECRETS["schedule-token"], SECRETS["schedule-ssn"])


def fill(url: str) -> Played:
    """Schedules and jobs before anything runs."""
    return asyncio.run(_fill(url))


async def _fill(url: str) -> Played:
    async with Duly(url, flows=app.flows) as office:
        projects = ResourceCollection(office.store, "projects", Project, indexes=["code"])
        await projects.of(user("ada")).create("site", Project("p-1"))
        mine = office.schedules("work").of(user("ada"))
        nine, told = cron("0 9 * * *"), f"for {SECRETS['schedule-ssn']}"
        often = every(seconds=1)
        await mine.create("often", often, action="fail", input=from_schedule("often"), max_runs=2)
        for name, action in (("daily", "succeed"), ("unheard", "succeed")):
            given = from_schedule(name)
            await mine.create(name, nine, action=action, input=given, description=told)
        await mine.create("resting", nine, action="fail", input=from_schedule("resting"))
        await mine.pause("resting", f"leaked {SECRETS['schedule-token']}")
        soon = once(datetime.now(UTC) + timedelta(seconds=1))
        await mine.create(
            "posted", soon, action="succeed", input=from_schedule("posted"), hand_over="http"
        )
        jobs = {"cancelled": await _enqueue(office, "succeed", "nobody")}
        await office.admin.cancel(jobs["cancelled"], reason=f"knew {SECRETS['job-password']}")
        for action in ("succeed", "fail", "stumble", "wait_long", "hold"):
            jobs[action] = await _enqueue(office, action)
        jobs["queued"] = await _enqueue(office, "succeed", "nobody")
        await office.admin.pause("nobody", "repairs", by="ada")
        await office.store.acquire_lock("nightly", "ada", 600_000)
    return Played(jobs)


async def _enqueue(office: Duly, action: str, queue: str | None = None) -> JobId:
    queue = app.actions[f"work.{action}"].queue if queue is None else queue
    made = await office.client.enqueue(f"work.{action}", from_job(action), queue=queue)
    return made.job_id


def play(played: Played, base_url: str, url: str) -> dict[str, list[str]]:
    """Call everything that can be called, and let all jobs end; gives the processes' lines."""
    with httpx.Client(base_url=base_url, timeout=30) as client:
        _call(client, played)
    lines: dict[str, list[str]] = {}
    words = ("tick", APP, "--url", base_url, "--period", "0.2", "--log", "text", *DEBUG)
    with Process(words, url) as tick:
        tick.until(lambda found: any(line.startswith("posted 1: 1 accepted") for line in found))
    lines["tick"] = tick.lines
    jobs, delivered = played.jobs, played.jobs["deployed"]
    with Process(("worker", APP, "--log", "json", *DEBUG), url) as worker:
        worker.until_attempts(
            {(jobs[name], "succeeded") for name in ("succeed", "stumble", "dispatched")}
            | {(jobs[name], "failed") for name in ("fail", "stumble", "wait_long")}
            | {(delivered, "failed")}
        )
        # The job, the delivery, and the first time of the schedule.
        worker.until(lambda found: sum('"job.dead"' in line for line in found) >= 3)
        assert worker.end() == 0
    lines["worker"] = worker.lines
    return lines


def _call(client: httpx.Client, played: Played) -> None:
    """Every call that is no GET."""
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
        _answered(client, played, method, place, json.dumps(body).encode(), ADA)
    body = {"project": "p-1", "ssn": SECRETS["webhook-ssn"]}
    for name, key in (("deployed", "webhook-key"), ("broken", "webhook-raised")):
        sent = json.dumps(body | {"api_key": SECRETS[key]}).encode()
        signature = hmac.new(SECRETS["sender-secret"].encode(), sent, "sha256").hexdigest()
        headers = {"x-signature": signature}
        _answered(client, played, "POST", f"/api/flows/work/webhooks/{name}", sent, headers)
    for flow, name in (
        *(("work", "daily"), ("work", "unheard"), ("work", "tidy")),
        *(("rough", "unresolved"), ("rough", "computed")),
    ):
        place = f"/api/flows/{flow}/schedules/ada/{name}/dispatch"
        _answered(client, played, "POST", place, b"", BEARER)
    _answered(client, played, "POST", "/api/nowhere", b"", {"x-user": "broken"})
    played.jobs["deployed"] = JobId(
        json.loads(played.answers["POST /api/flows/work/webhooks/deployed"])["requestIds"][0]
    )
    dispatched = played.answers["POST /api/flows/work/schedules/ada/daily/dispatch"]
    played.jobs["dispatched"] = JobId(json.loads(dispatched)["requestId"])


def _answered(
    client: httpx.Client,
    played: Played,
    method: str,
    place: str,
    body: bytes,
    headers: dict[str, str],
) -> None:
    answer = client.request(method, place, content=body, headers=headers)
    asked = f"{method} {place}"
    played.answers[asked] = played.answers.get(asked, "") + answer.text
