"""Conversion of stored values to API bodies for their owner. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from duly.model.ledger import Occurrence
from duly.model.schedules import Schedule
from duly.model.scopes import dispatch_id
from duly.operate.redaction.values import masked, scrub
from duly.operate.schedule_views import secrets_of
from duly.triggers import Explanation
from duly.triggers.instants import from_ms
from duly.web.api import shapes


def view_of(schedule: Schedule, now_ms: int, extra: Collection[str] = ()) -> shapes.ScheduleView:
    """Return a schedule with its next nominal time, if it is active.

    Secrets are masked even for the owner: an answer passes through more systems than a form.
    `extra` are the secret names that the action declares.
    """
    definition = schedule.definition
    secrets = secrets_of(schedule, extra)
    next_ms = None
    if schedule.state == "active":
        next_ms = definition.trigger.next_after_ms(now_ms)
    return shapes.ScheduleView(
        name=schedule.name,
        flow=schedule.flow,
        action=definition.action,
        trigger=definition.trigger.to_json(),
        words=definition.trigger.words,
        input=masked(definition.input, extra, secrets),
        description=masked(definition.description, extra, secrets),
        note=masked(definition.note, extra, secrets),
        enabled=definition.enabled,
        state=schedule.state,
        hand_over=definition.hand_over,
        next_at=None if next_ms is None else from_ms(next_ms),
        max_runs=definition.max_runs,
        delete_after_completion=definition.delete_after_completion,
        dispatch_id=dispatch_id(schedule.scope, schedule.name),
        version=schedule.version,
        created_at=from_ms(schedule.created_at_ms),
        updated_at=from_ms(schedule.updated_at_ms),
    )


def preview_of(found: Explanation) -> shapes.Preview:
    """Return an explanation as an API body."""
    times = [
        shapes.PreviewTime(
            each.at, each.local.isoformat(), [] if each.remark is None else [each.remark]
        )
        for each in found.times
    ]
    return shapes.Preview(found.words, found.tz or "UTC", times)


def history_of(
    rows: Sequence[Occurrence], limit: int, secrets: Collection[str] = ()
) -> shapes.History:
    """Return one page of the ledger, with error texts scrubbed."""
    following = from_ms(rows[-1].nominal_ms) if len(rows) == limit else None
    return shapes.History([_occurrence(row, secrets) for row in rows], following)


def _occurrence(row: Occurrence, secrets: Collection[str]) -> shapes.OccurrenceView:
    return shapes.OccurrenceView(
        nominal_at=from_ms(row.nominal_ms),
        until_at=from_ms(row.until_ms),
        count=row.count,
        run_at=from_ms(row.run_at_ms),
        state=row.state,
        request_id=row.job_id,
        reason=None if row.reason is None else scrub(row.reason, secrets),
        fired_at=None if row.fired_at_ms is None else from_ms(row.fired_at_ms),
        ended_at=None if row.ended_at_ms is None else from_ms(row.ended_at_ms),
    )
