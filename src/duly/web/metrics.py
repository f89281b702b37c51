"""Prometheus metrics: gauges from the database, and counters of this process.

Gauges are read on scrape, at most every few seconds. Lateness is observed from the most recently
ended occurrences, each of them once.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter as Multiset
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from duly.model.index import IndexHealth
from duly.model.jobs import JobState
from duly.model.ledger_counts import Lateness, MissingSchedule, OccurrenceCounts, OutcomeCount
from duly.model.summaries import DueSummary, QueueCount
from duly.operate.alarms import alarms
from duly.operate.coverage import shares_of
from duly.operate.job_views import WorkerView
from duly.operate.summary_views import Overview
from duly.operate.unserved import MAX_WORKERS, Unserved
from duly.web.dashboard.cached import Kept
from duly.web.dashboard.gate import Gate
from duly.web.dashboard.pages.page import MonitoredApp
from duly.web.operators.auth import OperatorAuth
from duly.web.operators.sign_outs import SignOuts

KIND = "text/plain; version=0.0.4; charset=utf-8"
QUEUES = 100
"""Limit of queues with their own label; cardinality must be bounded."""
FLOWS = 100
"""Limit of flows with their own label; the first by name."""
OTHER_FLOWS = "(other)"
"""Label of all other flows; no flow can have this name."""
UNSERVED = 100
"""Limit of reported queue and action pairs that no worker serves; longest waiting first."""
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_COUNTERS = {
    "plans": ("duly_plan_runs", "Planning steps"),
    "enqueued": ("duly_jobs_enqueued", "Jobs enqueued by this process"),
    "claimed": ("duly_jobs_claimed", "Jobs claimed by workers"),
    "dead": ("duly_jobs_dead", "Jobs that died"),
    "refused": ("duly_ends_refused", "Completions refused because they came too late"),
    "rescued": ("duly_lease_rescues", "Jobs whose lease expired unrenewed"),
    "promoted": ("duly_jobs_promoted", "Waiting jobs whose time came"),
    "pruned": ("duly_jobs_pruned", "Jobs removed after their retention"),
    "prune_runs": ("duly_prune_runs", "Retention steps, whatever they removed"),
    "prune_failures": ("duly_prune_failures", "Retention steps that failed"),
    "late_renewals": ("duly_lease_renewals_late", "Renewals after 90 % of a lease had passed"),
    "stuck_tokens": ("duly_tokens_stuck", "Tokens held for over a minute"),
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Values read from the database for one scrape."""

    seen: Overview
    queues: list[QueueCount]
    workers: list[WorkerView]
    health: IndexHealth
    occurrences: OccurrenceCounts
    missing: list[MissingSchedule]
    oldest_snapshot_ms: int


class Metrics:
    """Metrics of one application, in their own registry."""

    def __init__(self, app: MonitoredApp, auth: OperatorAuth, *, fresh_s: float = 5) -> None:
        self._app = app
        self._auth = auth
        self._gate = Gate(auth, SignOuts(app))
        self._facts: Kept[Facts] = Kept(self._read, for_s=fresh_s)
        self._known: Multiset[Lateness] | None = None
        self._registry = CollectorRegistry()
        self._lateness = Histogram(
            "duly_lateness_seconds",
            "How long after its run time an occurrence began",
            buckets=BUCKETS,
            registry=self._registry,
        )
        self.routes = [Route("/metrics", self._answer)]

    async def _answer(self, request: Request) -> Response:
        if not await self._may_read(request):
            return PlainTextResponse("a bearer token or a sign-in is needed\n", 401)
        return Response(await self.text(), media_type=KIND)

    async def _may_read(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        wanted = self._auth.options.metrics_token
        if scheme.lower() == "bearer" and wanted:
            return hmac.compare_digest(given.strip().encode(), wanted.encode())
        return not isinstance(await self._gate.enter(request), Response)

    async def text(self) -> bytes:
        """Return all metrics in Prometheus text format."""
        facts = await self._facts.get(wait_s=5)
        if facts is not None:
            self._observe(facts.seen.lateness)
        found = CollectorRegistry()
        is_up = facts is not None and not self._facts.has_failed
        found.register(_Families([*_gauges(facts, is_up=is_up), *self._counters()]))
        return generate_latest(found) + generate_latest(self._registry)

    async def _read(self) -> Facts:
        admin = self._app.admin
        await admin.monitoring.check_writable()
        seen, queues, workers, health, occurrences, missing = await asyncio.gather(
            admin.monitoring.overview(),
            admin.monitoring.queues(QUEUES),
            admin.workers(limit=MAX_WORKERS),
            admin.monitoring.index_health(),
            admin.monitoring.occurrences(),
            admin.monitoring.missing(),
        )
        held_ms = await admin.monitoring.oldest_snapshot_ms()
        counts = [count for _, count in queues]
        return Facts(seen, counts, workers, health, occurrences, missing, held_ms)

    def _observe(self, lateness: Sequence[Lateness]) -> None:
        now, known = Multiset(lateness), self._known
        self._known = now
        if known is not None:  # the first scrape sets the baseline
            for each in (now - known).elements():
                self._lateness.observe(max(0, each.late_ms) / 1000)

    def _counters(self) -> Iterable[Metric]:
        for name, (metric, words) in _COUNTERS.items():
            yield CounterMetricFamily(metric, words, value=self._app.meters.counts[name])
        ended = CounterMetricFamily(
            "duly_jobs_processed", "Attempts by how they ended", labels=["status"]
        )
        for status, count in sorted(self._app.meters.ended.items()):
            ended.add_metric([status], count)
        yield ended


class _Families:
    """Collector of given metric families."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _gauges(facts: Facts | None, *, is_up: bool) -> Iterable[Metric]:
    yield GaugeMetricFamily("duly_up", "The database answers and takes writes", value=float(is_up))
    if facts is not None:
        yield from _of_jobs(facts)
        yield from _of_index(facts.seen.due_summary)
        yield from _of_workers(facts.workers)
        yield _of_unserved(facts.seen.unserved)
        yield from _of_health(facts.health)
        yield from of_ledger(facts.occurrences)
        yield _of_missing(facts.missing)
        yield GaugeMetricFamily(
            "duly_oldest_snapshot_seconds",
            "Age of the oldest transaction that keeps deleted rows, on PostgreSQL",
            value=facts.oldest_snapshot_ms / 1000,
        )


def _of_health(health: IndexHealth) -> Iterable[Metric]:
    if health.is_whole:  # a partial count would look like lost schedules
        yield GaugeMetricFamily("duly_schedules_active", "Active schedules", value=health.active)
        yield GaugeMetricFamily("duly_index_rows", "Rows with a next time", value=health.rows)
    words = "Active schedules without a row"
    yield GaugeMetricFamily("duly_index_missing", words, value=health.missing)


def _of_jobs(facts: Facts) -> Iterable[Metric]:
    most = facts.seen.most
    states = GaugeMetricFamily("duly_jobs", "Jobs, counted up to 10,000 a state", labels=["state"])
    capped = GaugeMetricFamily(
        "duly_jobs_capped", "1: there are more than duly_jobs reports", labels=["state"]
    )
    for state in JobState:
        count = facts.seen.states.get(state, 0)
        states.add_metric([state.value], count)
        capped.add_metric([state.value], float(count >= most))
    yield states
    yield capped
    working = facts.seen.states.get(JobState.PROCESSING, 0)
    yield GaugeMetricFamily("duly_jobs_in_flight", "Running jobs", value=working)
    backlog = facts.seen.backlog
    words = "Queued jobs of all queues; above 10,000 an estimate by the database"
    yield GaugeMetricFamily("duly_backlog_jobs", words, value=backlog.jobs)
    words = "1: duly_backlog_jobs is an estimate"
    yield GaugeMetricFamily("duly_backlog_estimated", words, value=float(backlog.is_estimate))
    yield from _of_queues(facts.queues, facts.seen.due_summary.now_ms)


def _of_queues(queues: Sequence[QueueCount], now_ms: int) -> Iterable[Metric]:
    labels = ["queue", "state"]
    jobs = GaugeMetricFamily("duly_queue_jobs", "Jobs of a queue, up to 10,000 each", labels=labels)
    capped = GaugeMetricFamily(
        "duly_queue_jobs_capped", "1: there are more than duly_queue_jobs reports", labels=labels
    )
    oldest = GaugeMetricFamily(
        "duly_queue_oldest_seconds",
        "How long the next job of the queue has been due",
        labels=["queue"],
    )
    for each in queues:
        for place in ("queued", "later", "processing", "dead"):
            count = getattr(each, place)
            jobs.add_metric([each.queue, place], count)
            capped.add_metric([each.queue, place], float(place in each.capped))
        first_ms = now_ms if each.first_run_at_ms is None else each.first_run_at_ms
        oldest.add_metric([each.queue], max(0, now_ms - first_ms) / 1000)
    yield jobs
    yield capped
    yield oldest


def _of_index(summary: DueSummary) -> Iterable[Metric]:
    oldest = summary.oldest
    age_s = (summary.now_ms - oldest[0].run_at_ms) / 1000 if oldest else 0.0
    silent, missed = alarms(summary)
    is_capped = summary.is_due_capped
    for name, words, value in (
        ("duly_index_due", "Rows whose run time has come, up to 10,000", float(summary.due)),
        ("duly_index_due_capped", "1: there may be more than duly_index_due reports", is_capped),
        ("duly_index_oldest_due_seconds", "How long the oldest due row has waited", age_s),
        ("duly_index_quarantined", "Rows that cannot be evaluated", float(summary.quarantined)),
        ("duly_index_silent", "1: schedules are active, index is empty", silent.level == "bad"),
        ("duly_missed_runs", "1: rows wait for over two of their periods", missed.level == "bad"),
    ):
        yield GaugeMetricFamily(name, words, value=float(value))


def _of_workers(workers: list[WorkerView]) -> Iterable[Metric]:
    alive = [each for each in workers if each.is_alive]
    for name, words, value in (
        ("duly_workers_alive", "Workers with a heartbeat within 30 s", len(alive)),
        ("duly_workers_silent", "Workers without one", len(workers) - len(alive)),
        ("duly_worker_slots", "Slots of live workers", sum(each.slots for each in alive)),
        ("duly_worker_running", "Slots in use", sum(each.running for each in alive)),
    ):
        yield GaugeMetricFamily(name, words, value=float(value))


def _of_unserved(found: Sequence[Unserved]) -> Metric:
    jobs = GaugeMetricFamily(
        "duly_jobs_unserved",
        "Waiting jobs that no live worker would claim, of the first 1,000 in each queue",
        labels=["queue", "action"],
    )
    for each in found[:UNSERVED]:
        jobs.add_metric([each.queue, each.action], each.jobs)
    return jobs


def of_ledger(found: OccurrenceCounts) -> Iterable[Metric]:
    """Return the ledger's counts by flow and outcome, and the share that ran."""
    first = sorted({each.flow for each in found.counts})[:FLOWS]
    shown: Multiset[tuple[str, str]] = Multiset()
    for flow, outcome, times in found.counts:
        shown[flow if flow in first else OTHER_FLOWS, outcome] += times
    occurrences = GaugeMetricFamily(
        "duly_occurrences",
        "Nominal times in the ledger by outcome",
        labels=["flow", "outcome"],
    )
    for (flow, outcome), times in sorted(shown.items()):
        occurrences.add_metric([flow, outcome], times)
    yield occurrences
    yield GaugeMetricFamily(
        "duly_occurrences_capped",
        "1: the ledger was too large, and the counts are partial; check that a keeper runs",
        value=float(not found.is_whole),
    )
    coverage = GaugeMetricFamily(
        "duly_coverage_ratio", "Share of the decided nominal times that ran", labels=["flow"]
    )
    counts = (OutcomeCount(*key, times) for key, times in shown.items())
    for flow, share in shares_of(counts).items():
        coverage.add_metric([flow], share)
    yield coverage


def _of_missing(found: Sequence[MissingSchedule]) -> Metric:
    schedules = GaugeMetricFamily(
        "duly_schedules_missing",
        "Schedules that keep missing or skipping their times, by which is more, up to 50",
        labels=["outcome"],
    )
    missed = sum(each.missed >= each.skipped for each in found)
    schedules.add_metric(["missed"], missed)
    schedules.add_metric(["skipped"], len(found) - missed)
    return schedules
