"""Every metric, from what a process answers to a scraper."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from duly import Duly, Flow
from duly.testing.jobs import drain
from duly.web.dashboard.site import dashboard_app
from duly.web.operators.auth import AuthOptions, OperatorAuth
from tools.reference.markdown import code, table, words

_TOKEN = "a-token-for-the-reference-of-metrics"  # noqa: S105


def every_metric() -> str:
    """Name, type, labels and help of each."""
    rows = [
        (code(_name(family)), family.type, words(_labels(family)), f"{family.documentation}.")
        for family in sorted(families(), key=lambda family: family.name)
    ]
    return table(("name", "type", "labels", "help"), rows)


def families() -> list[Metric]:
    """What an application with one job that ran says of itself."""
    found = text_string_to_metric_families(asyncio.run(_scraped()))
    return [family for family in found if not family.name.endswith("_created")]


async def _scraped() -> str:
    flow = Flow("reference")

    @flow.action
    async def act() -> None:
        """Do nothing, so that there is an attempt to count."""

    async with Duly("memory:", flows=[flow]) as app:
        pages = dashboard_app(app, OperatorAuth(AuthOptions(metrics_token=_TOKEN)))
        await app.client.enqueue(act)
        await drain(app)
        await app.client.enqueue(act)  # one that waits, so that its queue is counted
        await app.schedule(act, 30)  # a time that is planned at once, so that the ledger has one
        transport = httpx.ASGITransport(app=pages)
        async with httpx.AsyncClient(transport=transport, base_url="http://reference") as client:
            answer = await client.get("/metrics", headers={"authorization": f"Bearer {_TOKEN}"})
            return answer.raise_for_status().text


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> Iterable[str]:
    found = {label for sample in family.samples for label in sample.labels}
    return sorted(found - {"le"})
