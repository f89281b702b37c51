"""Several processes claim one backlog: every row is claimed exactly once."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from duly import cron
from duly.model.index_rows import trigger_text
from duly.stores import open_store
from tests.rows import NOON_MS, fill

ROOT = Path(__file__).parent.parent.parent
DAILY = trigger_text(cron("0 12 * * *", tz="Europe/Berlin"))
ROWS = 20_000


def race(url: str, processes: int, limit: int) -> list[list[tuple[str, int]]]:
    """Start the processes, wait until all are ready, then let them run at the same time."""
    command = [sys.executable, "-m", "tests.integration.claimers", url, str(NOON_MS), str(limit)]
    running = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    outputs: list[list[tuple[str, int]]] = []
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        output, _ = process.communicate(timeout=100)
        assert process.returncode == 0
        outputs.append([(str(row), int(at)) for row, at in json.loads(output)])
    return outputs


async def still_due(url: str) -> int:
    store = open_store(url)
    left = len(await store.claim_due(NOON_MS, limit=10_000))
    await store.close()
    return left


def check_each_once(outputs: Iterable[list[tuple[str, int]]]) -> None:
    counts = Counter(taken for output in outputs for taken in output)
    assert len(counts) == ROWS
    assert set(counts.values()) == {1}


def test_eight_processes_on_postgresql(postgres_url: str) -> None:
    asyncio.run(fill(postgres_url, ROWS, DAILY))
    outputs = race(postgres_url, 8, 250)
    check_each_once(outputs)
    assert sum(bool(output) for output in outputs) > 1, "one process did everything: no race"
    assert asyncio.run(still_due(postgres_url)) == 0


@pytest.mark.timeout(240)
def test_four_processes_on_one_sqlite_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/race.db"
    asyncio.run(fill(url, ROWS, DAILY))
    outputs = race(url, 4, 50)
    check_each_once(outputs)
    assert sum(bool(output) for output in outputs) > 1, "one process did everything: no race"
    assert asyncio.run(still_due(url)) == 0
