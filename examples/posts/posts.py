"""Posts for many products: a weekly plan per platform, and drafts that wait for approval.

Each (product, platform) is one schedule of its owner, so each platform has its own times. A
deployment of a product arrives by webhook, one address for all users, and makes a draft too.
Only approved drafts are published.

Run it: python examples/posts/posts.py [URL]. Without a URL it works on a temporary SQLite file.
The example advances its clock through one week, so the output is the same every day.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from duly import (
    Context,
    Duly,
    Flow,
    ResourceKind,
    Routed,
    attribute_of,
    body_path,
    hmac_sha1,
    user,
    weekly,
)
from duly.model.scopes import Scope
from duly.testing.clock import ManualClock
from duly.testing.jobs import drain

MONDAY = datetime(2026, 5, 4, tzinfo=UTC)
STEP = timedelta(minutes=15)
SIGNING = "shared-with-the-hosting-company"

posts = Flow("posts")


@dataclass
class Product:
    title: str
    project_id: str | None = None
    """The project id at the hosting company; without one, the product gets no deployments."""


@dataclass
class Draft:
    text: str
    status: str = "pending"


@dataclass
class Slot:
    product: str
    platform: str


@dataclass
class Deployment:
    product: str
    url: str
    number: str


PRODUCTS = ResourceKind("products", Product, indexes=["project_id"])
DRAFTS = ResourceKind("drafts", Draft)


@posts.action
async def write_draft(slot: Slot, ctx: Context) -> None:
    assert ctx.schedule is not None
    product = await ctx.user.resources(PRODUCTS).get(slot.product)
    if product is None:
        return
    day = f"{ctx.schedule.nominal_at:%Y-%m-%d}"
    # The name is derived from the slot, so a second attempt finds the draft of the first one.
    name = f"{slot.product}/{slot.platform}/{day}"
    await ctx.user.resources(DRAFTS).get_or_create(name, Draft(f"{product.value.title}, {day}"))


def deployment_of(routed: Routed) -> Deployment:
    deployment = routed.body["payload"]["deployment"]
    return Deployment(routed.name, f"https://{deployment['url']}", deployment["id"])


@posts.webhook(
    "deployments",
    verify=hmac_sha1(header="x-vercel-signature", secret=SIGNING),
    route=attribute_of(PRODUCTS, "project_id", value=body_path("payload.project.id")),
    delivery_id=body_path("id"),
    input=deployment_of,
)
async def announce(deployment: Deployment, ctx: Context) -> None:
    name = f"{deployment.product}/deployment/{deployment.number}"
    await ctx.user.resources(DRAFTS).get_or_create(name, Draft(f"New at {deployment.url}"))


async def plan(
    app: Duly, owner: Scope, product: Product, week: Mapping[str, Mapping[str, Any]], tz: str
) -> None:
    """Store a product and the schedules of its platforms; a day without a time is off."""
    acting = app.acting_for(owner)
    name = product.title.lower()
    await acting.resources(PRODUCTS).create(name, product)
    for platform, days in week.items():
        slot = Slot(name, platform)
        await acting.schedules(posts).create(
            f"{name}-{platform}", weekly(days, tz=tz), action=write_draft, input=slot
        )


def deployment_event(project: str, delivery: str) -> dict[str, Any]:
    """Return an event as Vercel sends it, with the delivery id in the body."""
    number = delivery.removeprefix("uok_")
    return {
        "id": delivery,
        "type": "deployment.succeeded",
        "createdAt": 1_777_852_800_000,
        "region": None,
        "payload": {
            "team": {"id": "team_1"},
            "user": {"id": "usr_1"},
            "target": "production",
            "project": {"id": project},
            "deployment": {
                "id": f"dpl_{number}",
                "name": project,
                "url": f"{project}-{number}.vercel.app",
                "meta": {"githubCommitRef": "main"},
            },
        },
    }


async def deploy(app: Duly, project: str, delivery: str) -> None:
    body = json.dumps(deployment_event(project, delivery)).encode()
    signature = hmac.new(SIGNING.encode(), body, "sha1").hexdigest()
    headers = {"x-vercel-signature": signature}
    transport = httpx.ASGITransport(app.asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        path = "/api/flows/posts/webhooks/deployments"
        answer = await client.post(path, content=body, headers=headers)
    print(f"  {project}, delivery {delivery}: {answer.status_code} {answer.json()['status']}")


async def approve(app: Duly, owner: Scope, name: str) -> None:
    """Approve drafts as their owner; this is the only way to publish one."""
    drafts = app.acting_for(owner).resources(DRAFTS)
    await drafts.update(name, lambda draft: replace(draft, status="published"))


async def show(app: Duly, owner: Scope) -> None:
    print(f"{owner.id}:")
    for draft in await app.acting_for(owner).resources(DRAFTS).list():
        print(f"  {draft.name:32} {draft.value.status}")


async def pass_week(app: Duly, clock: ManualClock) -> None:
    while clock.now() < MONDAY + timedelta(days=7):
        clock.set(clock.now() + STEP)
        await app.planner().run_once()
        await drain(app)


async def main(url: str) -> None:
    clock = ManualClock(MONDAY)
    app = Duly(url, flows=[posts], clock=clock)
    ada, bob = user("ada"), user("bob")
    async with app.running(worker=False, keeper=False, planner=False):
        x = {"tue": "09:00", "thu": "09:00", "sun": None}
        await plan(
            app, ada, Product("Sloth", "prj_1"), {"x": x, "threads": {"mon": "18:30"}}, "UTC"
        )
        await plan(app, ada, Product("Otter"), {"x": {"fri": ["08:00", "20:00"]}}, "Asia/Tokyo")
        await plan(app, bob, Product("Heron", "prj_2"), {"x": {}}, "UTC")
        print("deployments:")
        for project, delivery in (
            ("prj_1", "uok_1"),
            ("prj_1", "uok_1"),
            ("prj_2", "uok_2"),
            ("prj_9", "uok_3"),
        ):
            await deploy(app, project, delivery)
        await pass_week(app, clock)
        await approve(app, ada, "sloth/x/2026-05-05")
        for owner in (ada, bob):
            await show(app, owner)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/posts.db"))
