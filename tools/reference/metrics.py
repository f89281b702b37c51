"""Generate the table of metrics from the answer of a process to a scraper."""

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
    """Return the table of metrics: name, type, labels and help."""
    rows = [
        (code(_name(family)), family.type, words(_labels(family)), f"{family.documentation}.")
        for family in sorted(families(), key=lambda family: family.name)
    ]
    return table(("name", "type", "labels", "help"), rows)


def families() -> list[Metric]:
    """Return the metrics of an application that has run one job."""
    found = text_string_to_metric_families(asyncio.run(_scraped()))
    return [family for family in found if not family.name.endswith("_created")]


async def _scraped() -> str:
    flow = Flow("reference")

    @flow.action
    async def act() -> None:
        """Do nothing; the call is counted as an attempt."""

    async with Duly("memory:", flows=[flow]) as app:
        pages = dashboard_app(app, OperatorAuth(AuthOptions(metrics_token=_TOKEN)))
        await app.client.enqueue(act)
        await drain(app)
        await app.client.enqueue(act)  # left waiting, so that its queue is counted
        await app.schedule(act, 30)  # planned at once, so that the ledger has an occurrence
        transport = httpx.ASGITransport(app=pages)
        async with httpx.AsyncClient(transport=transport, base_url="http://reference") as client:
            answer = await client.get("/metrics", headers={"authorization": f"Bearer {_TOKEN}"})
            return answer.raise_for_status().text


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> Iterable[str]:
    found = {label for sample in family.samples for label in sample.labels}
    return sorted(found - {"le"})
