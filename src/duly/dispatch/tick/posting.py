"""One post of a tick: its request, and the meaning of its answer. Pure.

Answers: 2xx closes the occurrence; 409, 425, 429, 5xx and no answer are retried; any other 4xx is
final, and only the body `schedule_not_found` counts against the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from duly.dispatch.auth.signing import SECRET_PREFIX, sign
from duly.model.dispatches import DispatchAnswer, DispatchEnd, Dispatching
from duly.model.scopes import Scope, dispatch_id
from duly.triggers.instants import from_ms

MAX_ANSWER_BYTES = 16 * 1024
MAX_RETRY_AFTER_S = 3_600
_AGAIN = frozenset({409, 425, 429})
_FINAL: dict[tuple[int, str], DispatchEnd] = {
    (403, "denied"): "denied",
    (404, "schedule_not_found"): "not_found",
}
"""The outcome of Duly's own refusals, by status and error; any other is `failed`."""


class Post(NamedTuple):
    """A request, ready to be sent."""

    url: str
    body: bytes
    headers: dict[str, str]


class Reply(NamedTuple):
    """An answer; status 0: there was none."""

    status: int
    body: bytes = b""
    retry_after: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays before an occurrence is posted again."""

    first_ms: int
    longest_ms: int

    def delay_ms(self, tries: int, chance: float, retry_after: str = "") -> int:
        """Return a delay, doubled each time, with jitter; at least the requested `retry_after`."""
        whole = min(self.longest_ms, self.first_ms << min(tries - 1, 30))
        asked = 0
        if retry_after.isascii() and retry_after.isdigit():
            asked = min(int(retry_after[:9]), MAX_RETRY_AFTER_S) * 1000
        return max(int(whole * (0.5 + chance / 2)), asked)


def post_of(row: Dispatching, base_url: str, secret: str, now_s: int) -> Post:
    """Return the request for one occurrence; every post of it has the same nominal time."""
    schedule_id = dispatch_id(Scope.parse(row.scope), row.name)
    nominal = from_ms(row.nominal_ms).isoformat()
    body = msgspec.json.encode(
        {"nominalFireTime": nominal, "flow": row.flow, "scheduleId": schedule_id}
    )
    headers = {"content-type": "application/json"}
    if secret.startswith(SECRET_PREFIX):
        headers |= sign(secret, f"{row.schedule_id}.{row.nominal_ms}", now_s, body)
    else:
        headers["authorization"] = f"Bearer {secret}"
    url = f"{base_url}/api/flows/{quote(row.flow, safe='')}/schedules/{schedule_id}/dispatch"
    return Post(url, body, headers)


def answer_of(row: Dispatching, reply: Reply, backoff: Backoff, chance: float) -> DispatchAnswer:
    """Return the outcome of a reply for its occurrence."""
    end, reason = _end(reply)
    delay_ms = backoff.delay_ms(row.tries, chance, reply.retry_after) if end == "again" else 0
    return DispatchAnswer(row.schedule_id, row.nominal_ms, end, reason, delay_ms)


def _end(reply: Reply) -> tuple[DispatchEnd, str | None]:
    status = reply.status
    if status == 0:
        return "again", f"no answer: {reply.failure}"[:500]
    if 200 <= status < 300:
        return "closed", None
    error = _error(reply.body)
    words = f"answered {status}" + (f" {error}" if error else "")
    if status in _AGAIN or status >= 500:
        return "again", words
    return _FINAL.get((status, error), "failed"), words


class _Problem(msgspec.Struct):
    error: str = ""


def _error(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Problem).error[:100]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""  # Not an answer of Duly: a proxy's page, or a truncated body.
