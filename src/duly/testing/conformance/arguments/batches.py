"""Call sequences with empty, duplicate, oversized or conflicting arguments."""

from __future__ import annotations

from typing import Any

from duly.model.claims import ClaimRequest
from duly.model.dispatches import MAX_DISPATCHES, DispatchAnswer, DispatchClaim
from duly.model.documents import DocumentWrite
from duly.model.jobs import JobId, JobState, Token
from duly.model.plans import LEDGER_MS, Backfill
from duly.model.schedule_writes import MAX_WRITES
from duly.model.schedules import ScheduleId
from duly.model.stored_jobs import MAX_INSERT
from duly.rules.outcomes import Finish
from duly.testing.conformance.jobs.samples import ADA, LEASE_MS, a_job
from duly.testing.conformance.samples import HOUR_MS, SCOPE, START_MS, a_key, a_row, a_write

Call = tuple[str, dict[str, Any]]

_TOKEN = Token("default", "system", 1, 1)


def _finish(name: str = "a", **fields: Any) -> Finish:
    ended = Finish(JobId(name), 1, JobState.SUCCEEDED, "succeeded", 1, result="1")
    return ended._replace(**fields)


def nothing() -> list[Call]:
    """Return calls with empty lists and empty filters."""
    return [
        ("insert_jobs", {"jobs": []}),
        ("put_schedules", {"writes": []}),
        ("finish", {"finishes": []}),
        ("renew", {"worker": ADA, "leases": [], "lease_ms": LEASE_MS}),
        ("release_tokens", {"worker": ADA, "tokens": []}),
        ("find_rows", {"schedule_ids": []}),
        ("occurrences_of_jobs", {"job_ids": []}),
        ("end_dispatches", {"claim_id": "c", "answers": []}),
        ("reconcile", {"flows": []}),
        ("list_occurrences", {"schedule_id": "a", "states": []}),
        ("claim_jobs", {"request": ClaimRequest(ADA, ())}),
        ("claim_jobs", {"request": ClaimRequest(ADA, actions=())}),
        ("claim_dispatches", {"claim": DispatchClaim("c", flows=())}),
    ]


def doubles() -> list[Call]:
    """Return calls with duplicates in one call."""
    job, write = a_job("a"), a_write("a")
    answer = DispatchAnswer(write.id, START_MS, "closed")
    return [
        ("insert_jobs", {"jobs": [job, job, a_job("b", key="k"), a_job("c", key="k")]}),
        ("put_schedules", {"writes": [write, write]}),
        ("put_schedules", {"writes": [a_write("x", expected_version=0)] * 2}),
        ("claim_jobs", {"request": ClaimRequest(ADA, ("default", "default"), 10, 10)}),
        ("renew", {"worker": ADA, "leases": [("a", 1), ("a", 1), ("a", 2)], "lease_ms": LEASE_MS}),
        ("finish", {"finishes": [_finish(), _finish()]}),
        ("finish", {"finishes": [_finish("b"), _finish("b", fence=2)]}),
        ("release_tokens", {"worker": ADA, "tokens": [_TOKEN, _TOKEN]}),
        ("find_rows", {"schedule_ids": [write.id, write.id]}),
        ("occurrences_of_jobs", {"job_ids": ["a", "a"]}),
        ("end_dispatches", {"claim_id": "c", "answers": [answer, answer]}),
        (
            "put_document",
            {"write": DocumentWrite("n", SCOPE, "d", "res", "{}", (("a", "1"), ("a", "1")))},
        ),
        ("find_documents", {"collection": "n", "attribute": "a", "value": "1"}),
    ]


def too_many() -> list[Call]:
    """Return calls with one item more than the limit."""
    answer = DispatchAnswer(a_write().id, START_MS, "closed")
    return [
        ("put_schedules", {"writes": [a_write()] * (MAX_WRITES + 1)}),
        ("insert_jobs", {"jobs": [a_job()] * (MAX_INSERT + 1)}),
        ("end_dispatches", {"claim_id": "c", "answers": [answer] * (MAX_DISPATCHES + 1)}),
        ("list_schedules", {"flow": "reminders", "scope": SCOPE}),
        ("get_job", {"job_id": "a"}),
    ]


def taken_ids() -> list[Call]:
    """Return calls that write another schedule, row or document under an id in use."""
    return [
        ("put_schedules", {"writes": [a_write("a")]}),
        ("put_schedules", {"writes": [a_write("b", id="id-a")]}),
        ("put_schedules", {"writes": [a_write("c", id="same"), a_write("d", id="same")]}),
        ("put_schedules", {"writes": [a_write("a", id="id-new")]}),
        ("get_schedule", {"key": a_key("b")}),
        ("get_schedule", {"key": a_key("c")}),
        ("upsert", {"row": a_row("e", schedule_id="id-a")}),
        ("put_schedules", {"writes": [a_write("z", key=a_key("z", scope="user:bob"), id="id-a")]}),
        ("put_document", {"write": DocumentWrite("n", SCOPE, "d", "res", "{}")}),
        ("put_document", {"write": DocumentWrite("n", SCOPE, "e", "res", "{}")}),
        ("put_document", {"write": DocumentWrite("n", SCOPE, "f", "id-a", "{}")}),
        ("put_schedules", {"writes": [a_write("g", id="res")]}),
        ("count_documents", {"collection": "n", "scope": SCOPE}),
    ]


def versions() -> list[Call]:
    """Return calls with versions other than the stored one."""
    key = a_key("a")
    document = DocumentWrite("n", SCOPE, "d", "res", "{}")
    calls: list[Call] = [("put_schedules", {"writes": [a_write("a")]})]
    calls += [("put_document", {"write": document})]
    for version in (0, 2, -1):
        calls += [
            ("delete_schedule", {"key": key, "expected_version": version}),
            ("put_schedules", {"writes": [a_write("a", expected_version=version)]}),
            ("put_schedules", {"writes": [a_write("b", expected_version=version or 7)]}),
            ("delete_schedule", {"key": a_key("gone"), "expected_version": version}),
            (
                "delete_document",
                {"collection": "n", "scope": SCOPE, "name": "d", "expected_version": version},
            ),
        ]
    return [*calls, ("delete_schedule", {"key": key, "expected_version": 1})]


def backfills() -> list[Call]:
    """Return backfills of empty, too old or unfinished ranges, and with limits out of range."""
    calls: list[Call] = [("put_schedules", {"writes": [a_write("a")]})]
    day_ms = 24 * HOUR_MS
    for schedule_id in ("id-a", "nobody"):
        for from_ms, to_ms, limit in (
            (START_MS, START_MS, 1),
            (START_MS, START_MS - 1, 1),
            (START_MS - LEDGER_MS - 1, START_MS, 1),
            (START_MS - HOUR_MS, START_MS + 2, 1),
            (START_MS - HOUR_MS, START_MS, 0),
            (START_MS - HOUR_MS, START_MS, 5_001),
            # Several errors at once: every store must report the same one.
            (START_MS + day_ms, START_MS, 0),
            (START_MS - LEDGER_MS - 1, START_MS + day_ms, 1),
            (START_MS + day_ms, START_MS + 1, 1),
        ):
            request = Backfill(ScheduleId(schedule_id), from_ms, to_ms, limit)
            calls.append(("backfill", {"request": request}))
    return calls


def locks() -> list[Call]:
    """Return calls with invalid lock names, owners and durations."""
    return [
        (verb, {"name": name, "owner": owner, "ttl_ms": ttl_ms})
        for verb in ("acquire_lock", "extend_lock")
        for name, owner, ttl_ms in (
            ("", "ada", 1),
            ("a", "", 1),
            ("", "", 0),
            ("x" * 256, "ada", 1),
            ("a", "x" * 256, 1),
            ("a", "ada", 0),
            ("a", "ada", 24 * HOUR_MS + 1),
        )
    ]
