"""What every Python peer's worker does apart from its work: count calls, and end with its parent.

Imported in the environments of the peers, so it needs the standard library only. Each said line is
one JSON object on the standard output: `first_at`, then `calls` after each hundredth of the jobs.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from itertools import count


class Calls:
    """Notes that the no-op job was called; cheap, and safe from several threads."""

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
    """One line to the parent."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """Leave at once when the parent closes the standard input, as it also does by dying."""
    threading.Thread(target=_await_end, daemon=True).start()


def _await_end() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
