"""The product as operators run it: commands in processes of their own, each line of them kept."""

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
from tests.leaks.office import SECRETS, URL_VARIABLE

ROOT = Path(__file__).parents[2]
APP = "tests.leaks.office:app"
LIMIT_S = 30
DULY = (sys.executable, "-c", "from duly.cli import main; main()")


class Process:
    """One `duly`; its lines can be waited for."""

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
        """Stop it as an operator does, and wait until its last line is read."""
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
        """Wait until its lines fit; gives what fitted."""
        with self._changed:
            assert self._changed.wait_for(lambda: fits(self.lines), LIMIT_S), self.tail()
            return fits(self.lines)

    def until_attempts(self, ends: set[tuple[str, str]]) -> None:
        """Wait until attempts of jobs, by (id, outcome), were told."""
        self.until(lambda lines: ends <= attempts(lines))

    def tail(self) -> str:
        """The last lines."""
        return "".join(self.lines[-30:])

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()


def attempts(lines: list[str]) -> set[tuple[str, str]]:
    """(job id, outcome) of the attempts that JSON lines tell."""
    told = (json.loads(line) for line in lines if '"job.attempt"' in line)
    return {(line["job_id"], line["outcome"]) for line in told}


def environment(url: str) -> dict[str, str]:
    """What every process is told, secrets among it."""
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
        # Nobody answers there: what a tick says of that is looked at, too.
        "DULY_BASE_URL": "http://127.0.0.1:9",
    }


def found_in(texts: dict[str, str]) -> list[tuple[str, str]]:
    """Where which secret stands; the first few."""
    leaks = [
        (where, name)
        for where, text in texts.items()
        for name, secret in SECRETS.items()
        if secret in text
    ]
    return leaks[:12]
