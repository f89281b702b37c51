"""Used by scripts of peers, whose environments lack Duly: ends in time and reports progress."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable

SECONDS = 20.0


def fire_in_time(entries: int, fired: Callable[[], int], seconds: float = SECONDS) -> None:
    """Start a thread that reports the count and exits when all have fired or time is up."""
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
