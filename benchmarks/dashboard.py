"""Measures how long the server takes for each page of the dashboard over a large database.

Prints a table, writes dashboard.json, and ends with one line per bar; exit status 1 means that a
bar is not met. The database is PostgreSQL with durable settings, the requests are real HTTP.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

# `python benchmarks/dashboard.py` puts this folder on the path, but not its parent.
sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
import uvicorn
from tests.browser.site import listening
from tests.servers import NO_SERVER, find_binaries

from benchmarks.dashboard_fill import fill
from benchmarks.options import parse
from benchmarks.report import Bar, machine_facts, today, write_results
from benchmarks.servers import NoServer, durable_server, scratch_folder
from duly import Duly
from duly.web.dashboard.site import dashboard_app
from duly.web.operators.auth import AuthOptions, OperatorAuth

P95_MS_AT_MOST = 300
PAGES = (
    "/",
    "/schedules",
    "/schedules?name=digest-77",
    "/schedules?state=paused",
    "/schedules?scope=user:77",
    "/schedule?flow=crm&scope=user:77&name=digest-77",
    "/jobs",
    "/jobs?state=dead",
    "/jobs?state=queued",
    "/jobs?state=processing",
    "/jobs?state=succeeded&queue=queue-3",
    "/jobs?schedule_id=sch_000000000077",
    "/job?id={job}",
    "/queues",
    "/queue?name=queue-3",
    "/workers",
    "/locks",
    "/quarantine",
    "/health",
    "/audit",
    "/metrics",
    "/readyz",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    options = parse("dashboard", __doc__, arguments)
    stored, rounds = (2_000, 3) if options.quick else (1_000_000, 40)
    binaries = find_binaries()
    if binaries is None:
        print(f"benchmark: {NO_SERVER}", file=sys.stderr)
        return 2
    try:
        with scratch_folder() as folder, durable_server(folder, binaries) as server:
            url = server.create()
            fill(url, stored, stored)
            figures = _measure(url, stored, rounds)
    except NoServer as error:
        print(f"benchmark: stopped, there are no figures: {error}", file=sys.stderr)
        return 2
    for path, (median, p95, worst) in figures.items():
        print(f"{path:55} median {median:6.1f} ms   p95 {p95:6.1f} ms   worst {worst:6.1f} ms")
    slowest = max(p95 for _, p95, _ in figures.values())
    bar = Bar("dashboard-p95-ms", slowest, P95_MS_AT_MOST, at_most=True)
    results = {
        "date": today(),
        "facts": machine_facts("starlette", "jinja2", "psycopg"),
        "schedules": stored,
        "jobs": stored,
        "rounds": rounds,
        "pages_ms": {
            path: dict(zip(("median", "p95", "worst"), each, strict=True))
            for path, each in figures.items()
        },
        "bars": [bar.to_json()],
    }
    write_results(options, "dashboard", results)
    print(bar)
    return 0 if bar.is_met else 1


def _measure(url: str, stored: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Return median, p95 and maximum of each page in milliseconds; the pages alternate."""
    times: dict[str, list[float]] = {path: [] for path in PAGES}
    with _serving(url) as address, httpx.Client(base_url=address, timeout=60) as client:
        for _ in range(rounds):
            for path in PAGES:
                start = perf_counter()
                answer = client.get(path.format(job=f"job_{stored - 5:012}"))
                times[path].append(1_000 * (perf_counter() - start))
                if answer.status_code != 200:
                    raise NoServer(f"{path} answered {answer.status_code}: {answer.text[:200]}")
    return {path: _figures(found) for path, found in times.items()}


def _figures(times: Sequence[float]) -> tuple[float, float, float]:
    rising = sorted(times)

    def at(share: float) -> float:
        return round(rising[min(len(rising) - 1, int(share * len(rising)))], 1)

    return at(0.5), at(0.95), at(1.0)


@contextmanager
def _serving(url: str) -> Iterator[str]:
    auth = OperatorAuth(AuthOptions(development_host="127.0.0.1"))
    dashboard = dashboard_app(Duly(url), auth)
    listener = listening()
    config = uvicorn.Config(dashboard, log_level="error", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
