"""Valid calls of every verb of the port, and invalid values to insert into them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from duly.model.claims import ClaimRequest, ProgressNote
from duly.model.dispatches import DispatchAnswer, DispatchClaim, Fire
from duly.model.documents import DocumentWrite
from duly.model.jobs import JobId, JobState, Token
from duly.model.ledger import OccurrenceState
from duly.model.plans import Backfill, PlanRequest
from duly.model.queues import QueueSettings, WorkerInfo
from duly.model.schedule_writes import ScheduleFilter
from duly.model.schedules import ScheduleId
from duly.model.stored_jobs import JobFilter, Retention
from duly.model.summaries import AuditEntry
from duly.model.upkeep import LedgerRetention
from duly.rules.outcomes import Finish
from duly.testing.conformance.jobs.samples import ADA, LEASE_MS, a_job
from duly.testing.conformance.samples import FLOW, HOUR_MS, SCOPE, START_MS, a_key, a_row, a_write

NOTHING = frozenset(
    {
        "check_writable",
        "oldest_snapshot_ms",
        "close",
        "now_ms",
        "zone_rules",
        "index_health",
        "count_jobs",
        "list_queues",
        "next_lease_end",
        "count_occurrences",
    }
)
"""Verbs without arguments."""
IN_TRANSACTION = frozenset({"insert_jobs_in", "put_schedules_in"})
"""Verbs that need a caller's transaction; they have their own suites."""

SPOILT: tuple[Any, ...] = (
    None,
    "",
    "a\0b",
    "half \ud800",
    "x" * 5_000,
    0,
    -1,
    2**40,
    2**70,
    -(2**70),
    True,
    1.5,
    b"bytes",
    ...,
    [],
    [None],
    ["a", "a"],
    {"a": 1},
    datetime(2026, 3, 2, 12),  # noqa: DTZ001 - a time without a zone is one of the mistakes
)
"""Invalid values; each replaces every argument, and every field of an argument, in turn."""

_JOB, _NOBODY = JobId("j"), ScheduleId("id-nobody")
_FIRE = a_job("fired", schedule_id="id-nobody", nominal_ms=START_MS)

CALLS: dict[str, dict[str, Any]] = {
    "get_document": {"collection": "notes", "scope": SCOPE, "name": "n"},
    "put_document": {"write": DocumentWrite("notes", SCOPE, "n", "res_n", "{}", (("a", "1"),))},
    "delete_document": {
        "collection": "notes",
        "scope": SCOPE,
        "name": "other",
        "expected_version": 1,
    },
    "list_documents": {
        "collection": "notes",
        "scope": SCOPE,
        "prefix": "n",
        "after": "a",
        "limit": 5,
    },
    "count_documents": {"collection": "notes", "scope": SCOPE},
    "find_documents": {"collection": "notes", "attribute": "a", "value": "1", "limit": 5},
    "put_schedules": {"writes": [a_write("w")]},
    "get_schedule": {"key": a_key("w")},
    "list_schedules": {"flow": FLOW, "scope": SCOPE, "after": "a", "limit": 5},
    "search_schedules": {
        "which": ScheduleFilter(FLOW, SCOPE, "active", "w"),
        "after": a_key("a"),
        "limit": 5,
    },
    "find_rows": {"schedule_ids": ["id-w"]},
    "delete_schedule": {"key": a_key("gone"), "expected_version": 1, "by": "ada"},
    "schedule_events": {"schedule_id": "id-w", "limit": 5},
    "upsert": {"row": a_row("r")},
    "claim_due": {"now_ms": START_MS, "limit": 5, "flow": "none", "claim_id": "claim"},
    "remove": {"key": a_key("gone")},
    "list_rows": {"flow": FLOW, "until_ms": START_MS, "limit": 5},
    "list_quarantined": {"limit": 5},
    "reconcile": {"flows": ["none"]},
    "insert_jobs": {"jobs": [a_job("j")]},
    "claim_jobs": {"request": ClaimRequest(ADA, ("none",), 1, LEASE_MS, ("a.b",))},
    "renew": {
        "worker": ADA,
        "leases": [("j", 1)],
        "lease_ms": LEASE_MS,
        "tokens": [Token("default", "system", 1, 1)],
        "token_lease_ms": 10_000,
    },
    "finish": {"finishes": [Finish(_JOB, 7, JobState.SUCCEEDED, "succeeded", 1, result="1")]},
    "release_tokens": {"worker": ADA, "tokens": [Token("default", "system", 1, 1)]},
    "start_jobs": {"worker": ADA, "leases": [("j", 1)]},
    "note_progress": {"notes": [ProgressNote(_JOB, 7, "{}")]},
    "cancel_job": {"job_id": "nobody", "by": "ada", "reason": "why"},
    "retry_job": {"job_id": "nobody", "reset_attempts": True, "by": "ada", "reason": "why"},
    "delete_job": {"job_id": "nobody", "by": "ada", "reason": "why"},
    "release_expired": {"limit": 5},
    "promote_due": {"limit": 5},
    "prune": {"retention": Retention(), "limit": 5},
    "get_job": {"job_id": "j"},
    "list_jobs": {
        "which": JobFilter(JobState.QUEUED, "default", "system", "a.b", "id-w", "c"),
        "before": "z",
        "limit": 5,
    },
    "job_events": {"job_id": "j", "limit": 5},
    "job_attempts": {"job_id": "j", "limit": 5},
    "set_queue": {"settings": QueueSettings("mail", note="why", job_limit=5, workspace_limit=2)},
    "beat": {"worker": WorkerInfo(ADA, "host", 1, ("default",), 4)},
    "list_workers": {"limit": 5},
    "count_line": {"look": 5, "limit": 5},
    "remove_worker": {"worker": "nobody"},
    "remove_silent_workers": {"silent_ms": HOUR_MS, "limit": 5},
    "acquire_lock": {"name": "nightly", "owner": "ada", "ttl_ms": 5_000},
    "extend_lock": {"name": "nightly", "owner": "ada", "ttl_ms": 5_000},
    "release_lock": {"name": "other", "owner": "ada"},
    "list_locks": {"name": "nightly", "after": "a", "limit": 5},
    "listen": {"wake": print},
    "plan_occurrences": {"request": PlanRequest(0, 5, ("none",))},
    "list_occurrences": {
        "schedule_id": "id-w",
        "before_ms": START_MS,
        "since_ms": START_MS - HOUR_MS,
        "states": [OccurrenceState.FIRED],
        "limit": 5,
    },
    "find_schedule": {"schedule_id": "id-w"},
    "run_now": {"schedule_id": "id-nobody", "request_id": "once"},
    "backfill": {"request": Backfill(_NOBODY, START_MS - HOUR_MS, START_MS, 5)},
    "pause_failing": {"schedule_id": "id-nobody"},
    "claim_dispatches": {"claim": DispatchClaim("claim", 5, LEASE_MS, ("none",))},
    "end_dispatches": {
        "claim_id": "claim",
        "answers": [DispatchAnswer(_NOBODY, START_MS, "failed", "why", 0)],
    },
    "fire": {"request": Fire(_FIRE, FLOW, SCOPE, "n")},
    "occurrence_at": {"schedule_id": "id-w", "nominal_ms": START_MS},
    "occurrences_of_jobs": {"job_ids": ["j"]},
    "ledger_summary": {"schedule_id": "id-w", "from_ms": START_MS - HOUR_MS, "to_ms": START_MS},
    "recent_lateness": {"limit": 5},
    "find_missing": {"limit": 5},
    "fold_counts": {"limit": 5},
    "count_states": {"most": 5},
    "search_jobs": {"which": JobFilter(), "before": "z", "limit": 5, "look": 50},
    "count_queues": {"most": 5, "limit": 5},
    "count_workspaces": {"queue": "default", "most": 5, "limit": 5},
    "count_ends": {"since_ms": START_MS, "most": 5},
    "upcoming": {"until_ms": START_MS, "sample": 5, "most": 5},
    "check_index": {"after": "a", "limit": 5},
    "due_summary": {"most": 5},
    "count_backlog": {"most": 5},
    "next_planned": {"limit": 5, "look": 5},
    "append_audit": {"entry": AuditEntry("ada", "job.retry", "job:j", "done", "why")},
    "list_audit": {"target": "job:j", "before": 5, "limit": 5},
    "erase": {"scope": "user:nobody", "cursor": None, "limit": 5},
    "prune_ledger": {"retention": LedgerRetention(), "limit": 5, "cursor": None},
    "prune_schedules": {"retention": LedgerRetention(), "limit": 5, "cursor": None},
    "recompute_zones": {"rules": None, "limit": 5, "cursor": None},
}
"""A valid call of each verb that has arguments."""


class Spoilt(NamedTuple):
    """A call with one invalid value."""

    verb: str
    where: str
    arguments: dict[str, Any]


def spoilt_calls() -> Iterator[Spoilt]:
    """Yield calls with one argument, or one field of an argument, replaced in turn."""
    for verb, arguments in CALLS.items():
        for name, value in arguments.items():
            for label, worse in _spoilt(name, value):
                yield Spoilt(verb, label, arguments | {name: worse})


def _spoilt(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for wrong in SPOILT:
        yield f"{name}={wrong!a:.30}", wrong
        if isinstance(value, list):
            yield f"{name}=[{wrong!a:.30}]", [wrong]
    is_list = isinstance(value, list)
    inner = value[0] if is_list else value
    for label, worse in _spoilt_fields(inner):
        yield f"{name}.{label}", [worse] if is_list else worse


def _spoilt_fields(value: Any) -> Iterator[tuple[str, Any]]:
    names: tuple[str, ...] = ()
    if dataclasses.is_dataclass(value):
        names = tuple(field.name for field in dataclasses.fields(value))
    elif hasattr(value, "_fields"):
        names = value._fields
    for name in names:
        for wrong in SPOILT:
            yield f"{name}={wrong!a:.30}", _with(value, name, wrong)
        if dataclasses.is_dataclass(getattr(value, name)):
            for label, worse in _spoilt_fields(getattr(value, name)):
                yield f"{name}.{label}", _with(value, name, worse)


def _with(value: Any, name: str, wrong: Any) -> Any:
    if hasattr(value, "_replace"):
        return value._replace(**{name: wrong})
    made = object.__new__(type(value))
    # Bypasses the validation of the value itself: a store must not rely on it.
    for field in dataclasses.fields(value):
        given = wrong if field.name == name else getattr(value, field.name)
        object.__setattr__(made, field.name, given)
    return made
