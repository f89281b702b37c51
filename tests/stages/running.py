"""Run a stage: stream its output, count its checks, and measure its time."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.stages.catalogue import ROOT, Command, Stage
from tests.stages.interpreters import environment_of

CLOSING = re.compile(r"=* ?(?:\x1b\[[0-9;]*m)*(?:\d+ [a-z]+(?:, )?)+ in [\d.]+s")
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)")


@dataclass(frozen=True)
class Counts:
    """Checks by outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        """Return the counts in the form of pytest's last line."""
        words = (("failed", self.failed), ("passed", self.passed), ("skipped", self.skipped))
        return ", ".join(f"{count} {word}" for word, count in words if count or word == "passed")


@dataclass(frozen=True)
class Outcome:
    """The result of a stage."""

    name: str
    counts: Counts
    seconds: float
    fault: str = ""
    """The reason for a failure, else empty."""


def run_stage(stage: Stage) -> Outcome:
    """Run all commands of a stage, even after one has failed."""
    print(f"\n=== {stage.name}: {stage.about}", flush=True)
    began = time.monotonic()
    counts, faults = Counts(), []
    try:
        python = sys.executable if stage.interpreter is None else environment_of(stage.interpreter)
    except subprocess.CalledProcessError as error:
        counts, faults = Counts(failed=1), [f"no environment: {error}"]
    else:
        for command in stage.commands:
            counted, fault = run_command(str(python), command, stage.limit_s)
            counts += counted
            faults += [fault] if fault else []
    seconds = time.monotonic() - began
    print(f"=== {stage.name}: {counts} in {seconds:.0f} s", *faults, sep="\n    ", flush=True)
    return Outcome(stage.name, counts, seconds, "; ".join(faults))


def run_command(python: str, command: Command, limit_s: float) -> tuple[Counts, str]:
    """Run one command. Return its counts and the reason if it failed."""
    words = " ".join(command.arguments)
    print(f"--- python {words}", flush=True)
    process = subprocess.Popen(
        [python, *command.arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **command.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    is_late = threading.Event()
    timer = threading.Timer(limit_s, _kill, (process, is_late))
    timer.start()
    try:
        lines = _stream(process)
        status = process.wait()
    finally:
        timer.cancel()
        _kill(process)
    if is_late.is_set():
        return Counts(failed=1), f"{words}: killed after {limit_s:.0f} s"
    counts = pytest_counts(lines) if command.is_pytest else command_counts(lines, status)
    if status != 0:
        return counts if counts.failed else counts + Counts(failed=1), f"{words}: status {status}"
    if counts.passed == 0:
        return counts, f"{words}: nothing ran"
    return counts, ""


def _stream(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    lines = []
    with process.stdout as output:
        for line in output:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line.rstrip("\n"))
    return lines


def _kill(process: "subprocess.Popen[str]", is_late: threading.Event | None = None) -> None:
    """Kill the command and all processes in its session."""
    if is_late is not None:
        is_late.set()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def pytest_counts(lines: Iterable[str]) -> Counts:
    """Return the counts in the last line of a pytest run."""
    closing = [line for line in lines if CLOSING.match(line)]
    found = {"passed": 0, "failed": 0, "skipped": 0, "error": 0, "xfailed": 0, "xpassed": 0}
    for count, word in COUNT.findall(closing[-1] if closing else ""):
        found[word.removesuffix("s") if word == "errors" else word] += int(count)
    return Counts(found["passed"], found["failed"] + found["error"], found["skipped"])


def command_counts(lines: Iterable[str], status: int) -> Counts:
    """Count a command as one check, and each line that starts with `skipped:` as one skip."""
    skipped = sum(line.startswith("skipped:") for line in lines)
    return Counts(int(status == 0), int(status != 0), skipped)


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return one line for each stage."""
    lines = [f"{'stage':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}"]
    for each in outcomes:
        counts = each.counts
        cells = f"{counts.passed:>8}{counts.failed:>8}{counts.skipped:>9}{each.seconds:>9.0f}"
        lines.append(f"{each.name:<14}{cells}{'  FAILED' if each.fault else ''}")
    return lines
