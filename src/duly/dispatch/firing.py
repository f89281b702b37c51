"""The last step of a dispatch: the input, and the verb that makes the job.

Only the store decides, in that one atomic step, whether an occurrence or a key is taken and whether
another run blocks this one; nothing is checked beforehand.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never

import msgspec

from duly.dispatch import contract
from duly.dispatch.contract import Answer, Asked, refusal
from duly.dispatch.ids import DispatchId
from duly.dispatch.resolver import Resolved, call
from duly.dispatch.validation import Checked
from duly.engine.ids import new_id
from duly.errors import InvalidInput
from duly.flows.job_options import encode
from duly.model.dispatches import Duplicate, Fire, Fired, Inactive, Overlapped
from duly.model.index_rows import policies_text
from duly.model.jobs import JobId, NewJob
from duly.model.principals import Principal
from duly.model.run_options import options_of
from duly.operate.redaction.raised import traceback_of
from duly.stores.port import Store
from duly.triggers.instants import from_ms

log = logging.getLogger(__name__)

MAX_SHIFT = 100
"""Most requests without a time that one schedule may get in one millisecond."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A dispatch that passed every check."""

    target: DispatchId
    asked: Asked
    resolved: Resolved
    checked: Checked
    key: str | None


@dataclass(frozen=True, slots=True)
class InputContext:
    """The argument of a function that makes the input."""

    schedule_id: str
    flow: str
    principal: Principal
    nominal_at: datetime
    origin: contract.Origin


async def fire(store: Store, firing: Firing) -> Answer:
    """Make the job and return the answer, or the answer why no job was made."""
    nominal_ms = firing.asked.nominal_ms
    is_own = nominal_ms is None
    if nominal_ms is None:
        nominal_ms = await store.now_ms()
    text = await _input(firing, nominal_ms)
    for shift in range(MAX_SHIFT):
        request = _request(firing, text, nominal_ms + shift)
        answer = await store.fire(request)
        match answer:
            case Fired(job_id):
                return contract.accepted(firing.target, firing.resolved.origin, job_id)
            case Overlapped(holder=holder):
                return contract.skipped(holder)
            case Duplicate(job_id):
                if not is_own or await _has_key(store, job_id, firing.key):
                    return contract.duplicate(firing.target)
                # Two requests in one millisecond are still two.
            case Inactive():
                raise refusal(404, "schedule_not_found")
            case _:
                assert_never(answer)
    raise refusal(503, "dispatch_failed", "too many requests for one schedule at once")


async def _has_key(store: Store, job_id: JobId | None, key: str | None) -> bool:
    if key is None or job_id is None:
        return key is not None
    job = await store.get_job(job_id)
    return job is None or job.key == key


async def _input(firing: Firing, nominal_ms: int) -> str:
    given: Any = firing.resolved.config.input
    action = firing.checked.action
    if callable(given):
        context = InputContext(
            firing.target.text,
            firing.resolved.flow,
            firing.checked.principal,
            from_ms(nominal_ms),
            firing.resolved.origin,
        )
        try:
            given = await call(given, context)
        except Exception as error:  # noqa: BLE001 - the application's own
            told = traceback_of(error)
            about = {"event": "dispatch.input"}
            log.error("input of %s raised: %s", action.name, told, extra=about)
            raise refusal(
                500, "dispatch_failed", "the input function raised; see the log"
            ) from None
    try:
        return encode(action, action.name, given)
    except InvalidInput as error:
        raise refusal(400, "invalid_schedule", str(error)) from None


def _request(firing: Firing, text: str, nominal_ms: int) -> Fire:
    resolved, checked, action = firing.resolved, firing.checked, firing.checked.action
    policies, principal = checked.policies, checked.principal
    options = options_of(policies, action.options.run)
    about = {
        "scheduleId": firing.target.text,
        "origin": resolved.origin,
        "nominalFireTime": from_ms(nominal_ms).isoformat(),
    }
    if firing.asked.key is not None:
        about["idempotencyKey"] = firing.asked.key  # The job itself has only a digest of it.
    try:
        job = NewJob(
            id=JobId(new_id("job_")),
            action=action.name,
            input=text,
            queue=options.queue,
            workspace=principal.workspace,
            scope=str(principal.scope),
            priority=policies.priority,
            retry=options.retry,
            timeout_ms=options.timeout_ms,
            delivery=options.delivery,
            key=firing.key,
            schedule_id=resolved.id,
            nominal_ms=nominal_ms,
            policies=policies_text(policies),
            turn=None if policies.overlap == "allow" else "asks",
            metadata=msgspec.json.encode({"schedule": about}).decode(),
        )
    except InvalidInput as error:
        raise refusal(400, "invalid_schedule", str(error)) from None
    is_stored = resolved.schedule is not None
    return Fire(job, resolved.flow, str(resolved.scope), resolved.name, is_stored)
