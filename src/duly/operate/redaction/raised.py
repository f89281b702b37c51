"""Tracebacks of application exceptions, scrubbed for the log."""

from __future__ import annotations

import traceback
from collections.abc import Collection

from duly.operate.redaction.values import MAX_SCANNED, scrub


def traceback_of(error: BaseException, secrets: Collection[str] = ()) -> str:
    """Return the traceback without `secrets` and without anything that looks like a secret.

    A very long one is cut at the beginning, which shows Duly's own frames.
    """
    text = "".join(traceback.format_exception(error)).rstrip()
    return scrub(text[-MAX_SCANNED:], secrets, limit=MAX_SCANNED)
