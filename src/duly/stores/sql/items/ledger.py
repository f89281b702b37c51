"""Ledger rows and the running markers of schedules."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from duly.engine.kinds import MARKER, OCCURRENCE, Marker, StoredOccurrence
from duly.model.jobs import JobId
from duly.stores.sql.items.mapped import Mapped, Values
from duly.stores.sql.rows.ledger import occurrence_of


def _occurrence(row: Row[Any]) -> StoredOccurrence:
    return StoredOccurrence(
        occurrence_of(row),
        claim_id=row.claim_id,
        position=row.position,
        missed=row.missed,
        row_version=row.row_version,
        at_ms=row.at_ms,
        lease_until_ms=row.lease_until_ms,
        tries=row.tries,
        delivery=row.delivery,
    )


def occurrence_values(item: StoredOccurrence) -> Values:
    """Return the columns of a ledger row."""
    own = item.occurrence
    return {
        "schedule_id": own.schedule_id,
        "nominal_ms": own.nominal_ms,
        "flow": own.flow,
        "scope": own.scope,
        "name": own.name,
        "run_at_ms": own.run_at_ms,
        "state": own.state.value,
        "missed": item.missed,
        "row_version": item.row_version,
        "claim_id": item.claim_id,
        "position": item.position,
        "at_ms": item.at_ms,
        "until_ms": own.until_ms,
        "times": own.count,
        "job_id": own.job_id,
        "reason": own.reason,
        "fired_at_ms": own.fired_at_ms,
        "ended_at_ms": own.ended_at_ms,
        "lease_until_ms": item.lease_until_ms,
        "tries": item.tries,
        "delivery": item.delivery,
    }


def _marker(row: Row[Any]) -> Marker:
    return Marker(row.schedule_id, JobId(row.job_id), row.since_ms)


OCCURRENCES = Mapped(
    OCCURRENCE, "occurrences", ("schedule_id", "nominal_ms"), _occurrence, occurrence_values
)
MARKERS = Mapped(MARKER, "running", ("schedule_id",), _marker, Marker._asdict)
