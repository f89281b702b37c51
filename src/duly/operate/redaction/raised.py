"""What a log may hold of an exception that an application's own code raised.

Takes the exception and the values known to be secret where it was raised; gives its traceback as
text without them, and without what looks like a secret.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection

from duly.operate.redaction.values import MAX_SCANNED, scrub


def traceback_of(error: BaseException, secrets: Collection[str] = ()) -> str:
    """The traceback, scrubbed; a very long one is cut at its beginning, which is ours."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return scrub(text[-MAX_SCANNED:], secrets, limit=MAX_SCANNED)
