"""Shared by the workers of all Python peers: counts calls and ends with the parent process.

Imported in the environments of the peers, so it uses only the standard library. It prints JSON
objects, one per line: `first_at`, then `calls` after each hundredth of the jobs.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from itertools import count


class Calls:
    """Counts calls of the no-op job; cheap and thread-safe."""

    def __init__(self, jobs: int) -> None:
        self._numbers = count(1)
        self._step = max(1, jobs // 100)

    def note(self) -> None:
        number = next(self._numbers)
        if number == 1:
            say(first_at=time.time())
        if number % self._step == 0:
            say(calls=number)


def say(**facts: object) -> None:
    """Print one line for the parent."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """Exit at once when the parent closes standard input, which also happens when it dies."""
    threading.Thread(target=_await_end, daemon=True).start()


def _await_end() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
