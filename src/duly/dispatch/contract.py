"""The dispatch contract: its answers, and the checks that need no store. Pure.

A check returns a value or raises a Refusal that carries the answer. The dispatcher decides the
order of the checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

import msgspec

from duly.dispatch.auth.secrets import Admission
from duly.dispatch.ids import DispatchId, read_id
from duly.errors import InvalidInput, InvalidInstant
from duly.model.jobs import JobId, check_text
from duly.model.json_bounds import check_json_text
from duly.model.schedules import ScheduleId
from duly.triggers import Trigger
from duly.triggers.instants import END_MS, STORED_FROM_MS, from_ms, to_ms

Origin = Literal["static", "dynamic"]
MAX_MESSAGE = 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: a status, a body that is sent as JSON, and headers."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """An exception that carries the answer and ends the checks."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """A request as received: the id still encoded, the body not parsed."""

    flow: str
    schedule_id: str
    headers: Mapping[str, str]
    """Headers with names in lower case."""
    body: bytes


class Words(msgspec.Struct, frozen=True, rename="camel"):
    """The body; every field may be absent."""

    nominal_fire_time: str | None = None
    """The occurrence as ISO-8601 with a zone; None: the request is an occurrence of its own."""
    idempotency_key: str | None = None
    flow: str | None = None
    """Flow and id, if present, must be those of the URL."""
    schedule_id: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The checked request of a body."""

    nominal_ms: int | None
    key: str | None
    is_aimed: bool
    """Whether the body names its flow and schedule."""


def accepted(target: DispatchId, origin: Origin, job_id: JobId) -> Answer:
    """Return the answer for a new job."""
    body = {"scheduleId": target.text, "origin": origin, "requestId": job_id}
    return Answer(202, {"status": "accepted", **body})


def duplicate(target: DispatchId) -> Answer:
    """Return the answer for an occurrence or key that was dispatched before."""
    return Answer(200, {"status": "duplicate", "scheduleId": target.text})


def skipped(in_flight: JobId) -> Answer:
    """Return the answer for a dispatch skipped by overlap policy: another run has not ended."""
    return Answer(200, {"status": "skipped", "reason": "in_flight", "requestId": in_flight})


def refusal(status: int, error: str, message: str | None = None) -> Refusal:
    """Return a Refusal with an error code and, if it helps, a message."""
    body = {"error": error}
    if message is not None:
        body["message"] = message[:MAX_MESSAGE]
    return Refusal(Answer(status, body))


def system_refusal(admission: Admission | None) -> Answer | None:
    """Return the answer to a caller that may not use a system-wide route; None if it may."""
    if admission is None:
        return unauthorized().answer
    if admission.is_system:
        return None
    message = (
        "this secret belongs to one owner and reaches that owner's schedules only; call with a "
        "secret of DULY_DISPATCH_SECRETS, or of a Gateway without a principal"
    )
    return refusal(403, "denied", message).answer


def unauthorized() -> Refusal:
    """Return the refusal of an unknown caller, the same for every request."""
    answer = Answer(401, {"error": "unauthorized"}, {"www-authenticate": "Bearer"})
    return Refusal(answer)


def read_target(raw: str) -> DispatchId:
    """Return the id of the URL; refuse an invalid one."""
    target = read_id(raw)
    if target is None:
        raise refusal(400, "invalid_schedule_id")
    return target


def read_body(body: bytes, flow: str, target: DispatchId) -> Asked:
    """Return the checked request of a body; an empty one requests no occurrence and no key."""
    if not body.strip():
        return Asked(None, None, is_aimed=False)
    try:
        check_json_text("the body", body)
        words = msgspec.json.decode(body, type=Words)
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidInput) as error:
        raise refusal(400, "invalid_body", f"the body must be a JSON object: {error}") from None
    if words.flow not in (None, flow) or not _is_for(words.schedule_id, target):
        raise refusal(400, "invalid_body", "flow and scheduleId must be those of the URL")
    if words.idempotency_key is not None:
        try:
            check_text("idempotencyKey", words.idempotency_key)
        except InvalidInput as error:
            raise refusal(400, "invalid_body", str(error)) from None
    is_aimed = words.flow is not None and words.schedule_id is not None
    return Asked(_nominal_ms(words.nominal_fire_time), words.idempotency_key, is_aimed)


def _is_for(text: str | None, target: DispatchId) -> bool:
    # Proxies and clients may encode the same URL differently.
    named = None if text is None else read_id(text)
    return text is None or (named is not None and named.canonical == target.canonical)


def _nominal_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        ms = to_ms(datetime.fromisoformat(text))
    except (ValueError, OverflowError, InvalidInstant):
        ms = -1
    if not STORED_FROM_MS <= ms < END_MS:
        message = f"nominalFireTime {text[:60]!r}; allowed: ISO-8601 with a zone, 2000 to 2199"
        raise refusal(400, "invalid_body", message)
    return ms


def stored_key(schedule: ScheduleId, kind: Literal["key", "message"], said: str) -> str:
    """Return the stored form of a call's key, which is unique to its schedule.

    Keys of jobs are unique by workspace and action, so callers' own keys could collide.
    """
    told = msgspec.json.encode([schedule, kind, said])
    return f"dispatch:{sha256(told).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Strictness:
    """The inputs of the strict mode check."""

    now_ms: int
    within_ms: int
    is_claimed: bool
    """A tick of this application has claimed the occurrence, which may then be late."""


def check_strictly(nominal_ms: int | None, trigger: Trigger | None, strict: Strictness) -> None:
    """Refuse a dispatch without a time, or with one that is no occurrence close to now."""
    if nominal_ms is None:
        raise refusal(400, "invalid_schedule", "nominalFireTime is missing; strict mode needs it")
    at = from_ms(nominal_ms).isoformat()
    if trigger is None or trigger.next_after_ms(nominal_ms - 1) != nominal_ms:
        raise refusal(400, "invalid_schedule", f"{at} is not an occurrence of this schedule")
    if abs(nominal_ms - strict.now_ms) > strict.within_ms and not strict.is_claimed:
        within = f"strict mode allows {strict.within_ms // 1000} s"
        raise refusal(400, "invalid_schedule", f"{at} is too far from now; {within}")
