"""Generate the tables of measurements in the documents from benchmarks/results."""

from __future__ import annotations

import json
from functools import cache
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

from tools.reference.markdown import table

RESULTS = Path(__file__).parents[2] / "benchmarks/results"


def peers() -> str:
    """Return the comparison with other products: rows claimed and advanced, and jobs run."""
    version = _results("index")["machine"]["apscheduler"]
    rows = []
    for database, peer in (("PostgreSQL", "APScheduler"), ("SQLite", "APScheduler, WAL")):
        ours, theirs = _claimed(database, "duly"), _claimed(database, peer)
        named = f"APScheduler {version}"
        rows.append((f"due schedules, {database}", named, ours, theirs, ours / theirs))
    for pairing in _results("jobs")["pairings"]:
        where = "SQLite" if pairing["name"] == "huey" else "PostgreSQL"
        ours, theirs = median(pairing["ours"]), median(pairing["others"])
        # As in the benchmark: the ratio of each pair of runs, which ran right after each other.
        ratio = median(map(truediv, pairing["ours"], pairing["others"]))
        rows.append((f"jobs, {where}", _peer(pairing), ours, theirs, ratio))
    return table(
        ("a second", "beside", "Duly", "the other", "ratio"),
        [
            (what, peer, _whole(ours), _whole(theirs), f"{ratio:.{0 if ratio >= 10 else 1}f}")
            for what, peer, ours, theirs, ratio in rows
        ],
    )


def growth() -> str:
    """Return the cost of one claim by the number of stored schedules."""
    found = _results("index")["databases"]
    sizes = [each["stored"] for each in found[0]["ticks"]]
    rows = [
        (each["database"], *(f"{tick['median_ms']:.1f} ms" for tick in each["ticks"]))
        for each in found
    ]
    return table(("one claim of what is due, over", *(f"{n:,} stored" for n in sizes)), rows)


def claims() -> str:
    """Return the due rows claimed and advanced per second, by batch size."""
    rows = [
        (
            each["database"],
            f"{one['batch']:,}",
            _whole(one["duly"]["median"]),
            _whole(one["bare driver"]["median"]),
        )
        for each in _results("index")["databases"]
        for one in each["rows_per_s"]
    ]
    return table(("database", "rows in a claim", "rows a second", "bare driver"), rows)


def jobs() -> str:
    """Return jobs per second by the number of worker processes, and the cost of an idle worker."""
    found = _results("jobs")
    idle = found["idle"]
    rows = [
        (
            f"jobs a second, {_count(each['processes'], 'worker process', 'worker processes')}",
            _whole(each["jobs_per_second"]),
        )
        for each in found["ours"]
    ]
    rows += [
        ("jobs stored a second, by `enqueue_many`", _whole(median(found["bulk"]["ours"]))),
        ("statements a second of an idle worker", f"{idle['queries_per_second']:.1f}"),
        ("a core's share of an idle worker", f"{idle['cpu_percent']:.1f} %"),
        ("from enqueue to start, idle worker, median", f"{idle['pickup_p50_ms']:.0f} ms"),
        ("from enqueue to start, idle worker, 99 of 100", f"{idle['pickup_p99_ms']:.0f} ms"),
    ]
    return table(("PostgreSQL", "measured"), rows)


def posts() -> str:
    """Return the posts per second of a tick."""
    found = _results("dispatch")
    rows = [(name, _whole(each["median"])) for name, each in found["posts_per_s"].items()]
    load = found["load_at_start"]
    return (
        table(("posts a second", "measured"), rows) + f"\n\nLoad average at the start: {load:.1f}."
    )


def machine() -> str:
    """Return the machine and date of each benchmark."""
    rows = []
    for name in ("index", "jobs", "dispatch"):
        found = _results(name)
        where = found["machine"]
        rows.append(
            (
                name,
                found["date"],
                where["system"],
                where["python"],
                where.get("disk", "not recorded"),
            )
        )
    return table(("benchmark", "date", "machine", "Python", "disk"), rows)


@cache
def _results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _claimed(database: str, who: str) -> float:
    (found,) = [each for each in _results("index")["databases"] if each["database"] == database]
    return float(found["rows_per_s"][0][who]["median"])


def _peer(pairing: Any) -> str:
    """Return the name and version of a peer; its configuration is in the JSON."""
    version = pairing["theirs"]["configuration"].split(",")[0]
    name = pairing["name"].removesuffix(" preset")
    if name == "bare SQL":
        return f"{name} by {version}"
    return f"{name} {version}" + (", its own preset" if name != pairing["name"] else "")


def _whole(figure: float) -> str:
    """Return a figure rounded to two significant digits; the JSON has all of them."""
    step = 10 ** max(0, len(str(int(figure))) - 2)
    return f"{round(figure / step) * step:,}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
