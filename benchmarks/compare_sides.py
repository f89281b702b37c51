"""The two sides of a comparison: each has a checkout and a process that runs the workload on it.

Sources are copied before the first run, so that edits during a long run have no effect. A process
lives for one pair and has its own database.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.servers import PostgresServer

from benchmarks.scheduler_rows import EMPTIED, Desk, now_ms

ROOT = Path(__file__).parents[1]
POSTGRESQL, SQLITE = "postgresql", "sqlite"
STORES = (POSTGRESQL, SQLITE)
BASE, OURS = "base", "ours"
_LATER_MS = 30 * 86_400_000
_TIDIED = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'duly\\_%'"


class NoComparison(Exception):
    """The base commit is not available, or a side failed."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """The sources of one side."""

    name: str
    revision: str
    source: Path


def checkouts(base: str, folder: Path) -> tuple[Checkout, Checkout]:
    """Copy the sources of a commit and of the working tree into a folder."""
    commit = _git("rev-parse", "--verify", "--short", f"{base}^{{commit}}").decode().strip()
    archive = _git("archive", "--format=tar", commit, "src")
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder / BASE, filter="data")
    shutil.copytree(ROOT / "src", folder / OURS / "src", ignore=shutil.ignore_patterns("*.pyc"))
    ours = _git("rev-parse", "--short", "HEAD").decode().strip()
    if _git("status", "--porcelain", "--", "src"):
        ours += " with uncommitted changes"
    return (
        Checkout(BASE, commit, folder / BASE / "src"),
        Checkout(OURS, ours, folder / OURS / "src"),
    )


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)  # noqa: S607
    if done.returncode:
        raise NoComparison(f"git {words[0]}: {done.stderr.decode().strip()}")
    return done.stdout


class Side:
    """A process that runs one checkout on one database."""

    def __init__(self, checkout: Checkout, url: str, stats_url: str, seed: int, log: Path) -> None:
        self.checkout = checkout
        self._url = url
        self._log = log
        # Both sides of a pair use the same hash seed; each pair uses another one.
        paths = {"PYTHONPATH": f"{checkout.source}{os.pathsep}{ROOT}", "PYTHONHASHSEED": str(seed)}
        module = [sys.executable, "-P", "-m", "benchmarks.compare_workload"]
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*module, str(checkout.source), url, stats_url],
                env=os.environ | paths,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._answer()

    def fill(self, schedules: int) -> None:
        """Create the schedules that `plan` plans, then vacuum."""
        self._ask({"operation": "fill", "count": schedules})
        self.settle()

    def run(self, operation: str, count: int, *, is_counted: bool = False) -> Mapping[str, Any]:
        """Run operations and return their costs."""
        if operation == "plan":
            self._reset(now_ms())
        self._empty_wal()
        return self._ask({"operation": operation, "count": count, "is_counted": is_counted})

    def finish(self, operation: str) -> None:
        """Clean up after an operation, so that it does not affect the next one."""
        if operation == "plan":
            self._reset(now_ms() + _LATER_MS)

    def settle(self) -> None:
        """Vacuum and analyze, as autovacuum does in production."""
        with self._desk() as desk:
            if desk.is_postgresql:
                desk.run(f"VACUUM ANALYZE {', '.join(row[0] for row in desk.run(_TIDIED))}")

    def _reset(self, due_ms: int) -> None:
        """Delete what was planned and make all schedules due at an instant."""
        with self._desk() as desk:
            for table in EMPTIED:
                desk.run(f"{'TRUNCATE' if desk.is_postgresql else 'DELETE FROM'} duly_{table}")
            desk.run("UPDATE duly_schedule_index SET nominal_ms = :ms, run_at_ms = :ms", ms=due_ms)
            if desk.is_postgresql:
                desk.run("VACUUM ANALYZE duly_schedule_index")

    def _empty_wal(self) -> None:
        """Checkpoint a SQLite file, so that a run that writes less than 32 MB needs no checkpoint.

        A checkpoint during a run would cost that side more than the whole run.
        """
        with self._desk() as desk:
            if not desk.is_postgresql:
                desk.run("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextlib.contextmanager
    def _desk(self) -> Iterator[Desk]:
        desk = Desk(self._url)
        try:
            yield desk
        finally:
            desk.close()

    def _ask(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # _answer() reports why the process ended
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            said = self._log.read_text().strip().splitlines() or ["no output"]
            raise NoComparison(f"{self.checkout.name} stopped: {said[-1]}")
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process, which disconnects from its database."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextlib.contextmanager
def running(
    checkout: Checkout, store: str, server: PostgresServer, folder: Path, seed: int
) -> Iterator[Side]:
    """Run a side in a new database until the end of the block."""
    file = folder / f"{checkout.name}.db"
    url = server.create() if store == POSTGRESQL else f"sqlite:///{file}"
    try:
        side = Side(checkout, url, server.url, seed, folder / f"{checkout.name}.log")
        try:
            yield side
        finally:
            side.close()
    finally:
        if store == POSTGRESQL:
            server.drop(url)
        for each in folder.glob(f"{file.name}*"):
            each.unlink()
