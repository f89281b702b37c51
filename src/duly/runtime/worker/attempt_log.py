"""One log line per attempt: action, outcome, lateness and duration."""

from __future__ import annotations

import logging

from duly.clock import Clock
from duly.model.jobs import LeasedJob
from duly.rules.outcomes import Outcome
from duly.triggers.durations import duration_text
from duly.triggers.instants import from_ms, to_ms

log = logging.getLogger(__name__)


def is_notified() -> bool:
    """Return whether these lines are logged at all."""
    return log.isEnabledFor(logging.INFO)


def tell(job: LeasedJob, outcome: Outcome | None, took_s: float, clock: Clock) -> None:
    """Log the outcome of an attempt that has just ended; never its input or result.

    `latency_ms` is the time from the nominal time to the start of a job that a schedule made. It
    uses the host's clock, is never below 0 and is for information; the ledger keeps lateness.
    """
    duration_ms = round(took_s * 1000)
    ending = "lost" if outcome is None else type(outcome).__name__.lower()
    fields: dict[str, object] = {
        "event": "job.attempt",
        "job_id": job.id,
        "action": job.action,
        "queue": job.queue,
        "workspace": job.workspace,
        "attempt": job.attempt,
        "outcome": ending,
        "duration_ms": duration_ms,
    }
    late = ""
    if job.nominal_ms is not None:
        begun_ms = to_ms(clock.now()) - duration_ms
        latency_ms = max(0, begun_ms - job.nominal_ms)
        late = f", {duration_text(latency_ms)} after its time"
        fields |= {
            "schedule_id": job.schedule_id,
            "nominal_at": from_ms(job.nominal_ms).isoformat(),
            "latency_ms": latency_ms,
        }
    log.info(
        "job %s of %s: %s in %s%s",
        job.id,
        job.action,
        ending,
        duration_text(duration_ms),
        late,
        extra=fields,
    )
