"""For scripts of peers, in whose environments Duly is not: end in time, and say how far it went."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable

SECONDS = 20.0


def fire_in_time(entries: int, fired: Callable[[], int], seconds: float = SECONDS) -> None:
    """Say how many fired, and end, when all have or the time is up; returns at once."""
    threading.Thread(target=_watch, args=(entries, fired, seconds), daemon=True).start()


def _watch(entries: int, fired: Callable[[], int], seconds: float) -> None:
    began = time.perf_counter()
    count = 0
    while count < entries and time.perf_counter() - began < seconds:
        time.sleep(0.02)
        count = fired()
    spent = time.perf_counter() - began
    sys.stdout.write(json.dumps({"fired": count, "seconds": spent}) + "\n")
    sys.stdout.flush()
    os._exit(0)
