"""Measures other schedulers with entries that are all due: fires per second during 20 seconds.

Each runs in its own environment. One that cannot be measured here is absent, with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from tests.servers import PostgresServer

from benchmarks.jobs_peer_environments import ROOT, Absent, Program, own_program, python_program

START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Fired:
    """Result of one scheduler with a number of entries."""

    name: str
    entries: int
    fired: int | None
    seconds: float | None
    why_absent: str | None = None

    @property
    def per_second(self) -> float | None:
        return None if not self.fired or not self.seconds else self.fired / self.seconds

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"per_second": self.per_second}


PEERS: dict[str, Callable[[], Program]] = {
    "APScheduler 3": lambda: own_program("scheduler_peer_apscheduler3"),
    "APScheduler 4 (alpha)": lambda: python_program(
        "apscheduler4",
        "scheduler_peer_apscheduler4",
        ["apscheduler==4.0.0a6", "sniffio", "sqlalchemy[asyncio]", "psycopg[binary]"],
    ),
    "Celery beat": lambda: python_program("celery", "scheduler_peer_celery", ["celery"]),
}


def measure_peers(server: PostgresServer, entries: Sequence[int], seconds: float) -> list[Fired]:
    """Measure all peers with each number of entries."""
    answers = []
    for name, program in PEERS.items():
        for count in entries:
            print(f"benchmark: {name}, {count:,} entries", file=sys.stderr)
            answers.append(_measure(server, name, program, count, seconds))
    return answers


def left_out(entries: Sequence[int]) -> list[Fired]:
    """Return results for peers that were not measured."""
    return [Fired(name, count, None, None, "left out") for name in PEERS for count in entries]


def _measure(
    server: PostgresServer, name: str, program: Callable[[], Program], count: int, seconds: float
) -> Fired:
    url = server.create()
    try:
        fired, spent = _ask(program(), [url, str(count)], seconds)
    except Absent as error:
        return Fired(name, count, None, None, str(error))
    finally:
        server.drop(url)
    return Fired(name, count, fired, spent)


def _ask(program: Program, arguments: Sequence[str], seconds: float) -> tuple[int, float]:
    """Run a peer's script; return the count and seconds of its last JSON line."""
    try:
        done = subprocess.run(
            [*program.words, *arguments],
            cwd=ROOT,
            env=os.environ | program.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS + seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Absent("it was not ready in time") from None
    lines = done.stdout.split("\n")
    said = next((line for line in reversed(lines) if line.startswith("{")), None)
    if said is None:
        complaint = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise Absent(f"it failed: {complaint[:120]}")
    facts = json.loads(said)
    return int(facts["fired"]), float(facts["seconds"])
