"""Run `duly` commands as operators do, in processes of their own, and record their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from duly.web.operators.accounts import hash_password
from tests.leaks.application import SECRETS, URL_VARIABLE

ROOT = Path(__file__).parents[2]
APP = "tests.leaks.application:app"
LIMIT_S = 30
DULY = (sys.executable, "-c", "from duly.cli import main; main()")


class Process:
    """A running `duly` command with its output so far."""

    def __init__(self, words: tuple[str, ...], url: str) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self.popen = subprocess.Popen(
            [*DULY, *words],
            cwd=ROOT,
            env=environment(url),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        """Stop it with SIGTERM, wait until its last line is read, and return its exit status."""
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            self.popen.wait(LIMIT_S)
        finally:
            self.popen.kill()
            self._reader.join()
            assert self.popen.stdout is not None
            self.popen.stdout.close()
        return self.popen.returncode

    def until(self, fits: Callable[[list[str]], Any]) -> Any:
        """Wait until `fits(lines)` is true, and return its result."""
        with self._changed:
            assert self._changed.wait_for(lambda: fits(self.lines), LIMIT_S), self.tail()
            return fits(self.lines)

    def until_attempts(self, ends: set[tuple[str, str]]) -> None:
        """Wait until attempts with these (job id, outcome) pairs were logged."""
        self.until(lambda lines: ends <= attempts(lines))

    def tail(self) -> str:
        """Return the last lines."""
        return "".join(self.lines[-30:])

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()


def attempts(lines: list[str]) -> set[tuple[str, str]]:
    """Return the (job id, outcome) pairs of the attempts in JSON log lines."""
    logged = (json.loads(line) for line in lines if '"job.attempt"' in line)
    return {(line["job_id"], line["outcome"]) for line in logged}


def environment(url: str) -> dict[str, str]:
    """Return the environment of every process, which contains secrets."""
    hashed = hash_password(SECRETS["operator"])
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        URL_VARIABLE: url,
        "DULY_URL": url,
        "DULY_OPERATORS": f"ada:operator:{hashed}",
        "DULY_SESSION_SECRET": SECRETS["session-secret"],
        "DULY_METRICS_TOKEN": SECRETS["metrics-token"],
        "DULY_DISPATCH_SECRETS": SECRETS["dispatch-secret"],
        # Nothing listens there: the errors that a tick logs about it are checked too.
        "DULY_BASE_URL": "http://127.0.0.1:9",
    }


def found_in(texts: dict[str, str]) -> list[tuple[str, str]]:
    """Return the first leaks as (place, name of the secret)."""
    leaks = [
        (where, name)
        for where, text in texts.items()
        for name, secret in SECRETS.items()
        if secret in text
    ]
    return leaks[:12]
