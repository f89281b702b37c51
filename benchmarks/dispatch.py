"""Compares the tick with loops of httpx calls: posts per second to one local server.

Prints a table, writes dispatch.json and dispatch.png, and ends with one line per bar; exit status
1 means that a bar is not met. The tick also claims from PostgreSQL and stores every answer with
durable commits; the loops do neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

# `python benchmarks/dispatch.py` puts this folder on the path, but not its parent.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import NO_SERVER, find_binaries

from benchmarks.dispatch_posts import CONCURRENCY, Load, Short, loop, many_at_once, tick
from benchmarks.options import parse
from benchmarks.report import Bar, Chart, machine_facts, table, today, write_results
from benchmarks.servers import NoServer, durable_server, scratch_folder

VS_LOOP_AT_LEAST = 2.0
ROOT = Path(__file__).parents[1]
OURS, LOOP, MANY = "duly tick", "httpx loop", f"httpx, {CONCURRENCY} at once"


@contextlib.contextmanager
def endpoint() -> Iterator[str]:
    """Run the endpoint in a separate process during the block; yield its URL."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "dispatch_endpoint.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    options = parse("dispatch", __doc__, arguments)
    posts, rounds = (50, 2) if options.quick else (1_000, 3)
    try:
        rates = _measure(posts, rounds)
    except (NoServer, Short) as error:
        print(f"benchmark: stopped, there are no figures: {error}", file=sys.stderr)
        return 1
    bar = Bar("tick-vs-httpx-loop", _ratio(rates, LOOP), VS_LOOP_AT_LEAST)
    facts = machine_facts("aiohttp", "httpx", "uvicorn", "psycopg")
    lines = [["posts per second", "median", "best", "duly is ×"]]
    lines += [
        [name, f"{median(found):,.0f}", f"{max(found):,.0f}", f"{_ratio(rates, name):.1f}"]
        for name, found in rates.items()
    ]
    print(*(f"{name:<12} {value}" for name, value in facts.items()), sep="\n")
    print(f"\n{table(lines)}\n\n{posts:,} posts, medians of {rounds} paired rounds")
    write_results(
        options,
        "dispatch",
        {
            "benchmark": "dispatch",
            "date": today(),
            "machine": facts,
            "size": {"posts": posts, "rounds": rounds, "concurrency": CONCURRENCY},
            "posts_per_s": {name: {"median": median(r), "rounds": r} for name, r in rates.items()},
            "bars": [bar.to_json()],
        },
    )
    groups = {"posts to a local server": {name: median(r) for name, r in rates.items()}}
    chart = Chart(
        "Posting what is due", "posts per second", list(rates), groups, "more", is_log=False
    )
    chart.write_png(options.out / "dispatch.png")
    print("", bar, sep="\n")
    return 0 if bar.is_met else 1


def _ratio(rates: dict[str, list[float]], name: str) -> float:
    return median(a / b for a, b in zip(rates[OURS], rates[name], strict=True))


def _measure(posts: int, rounds: int) -> dict[str, list[float]]:
    binaries = find_binaries()
    if binaries is None:
        raise NoServer(NO_SERVER)
    rates: dict[str, list[float]] = {OURS: [], LOOP: [], MANY: []}
    with (
        scratch_folder() as folder,
        durable_server(folder, binaries) as server,
        endpoint() as url,
    ):
        database = server.create()
        load = Load(url, posts)
        for number in range(rounds + 1):
            print(f"benchmark: round {number} of {rounds}", file=sys.stderr)
            found = {
                OURS: asyncio.run(tick(load, database, f"r{number}")),
                LOOP: loop(load),
                MANY: asyncio.run(many_at_once(load)),
            }
            if number:  # the round before the first warms up
                for name, rate in found.items():
                    rates[name].append(rate)
    return rates


if __name__ == "__main__":
    sys.exit(main())
