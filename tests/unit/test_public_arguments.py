"""Tests that public methods raise only Duly's own errors for wrong arguments."""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Duly
from duly.errors import BackendUnavailable, DulyError, InternalError
from duly.flows.client import Client
from duly.flows.collections import ResourceCollection, ScopedSchedules
from duly.flows.collections.collection import ScopedCollection
from duly.flows.collections.requests import NewSchedule, ScheduleOptions
from duly.flows.flow import Flow
from duly.flows.job_requests import JobOptions
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Policies
from duly.model.scopes import SYSTEM, user
from duly.model.stored_jobs import JobFilter
from duly.operate.admin import Admin
from duly.operate.schedule_admin import ScheduleAdmin
from duly.stores import MemoryStore
from duly.testing.conformance.arguments.samples import SPOILT
from duly.triggers import cron

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
KEY = ScheduleKey("mail", "user:ada", "digest")
NOBODY = "job_nobody"

flow = Flow("mail")


@flow.action
def send(input: dict[str, Any]) -> None:  # noqa: A002
    pass


@dataclass
class Note:
    text: str


OPTIONS: dict[str, Any] = {
    "queue": "mail",
    "workspace": "acme",
    "scope": user("ada"),
    "priority": 1,
    "delay": HOUR,
    "timeout": HOUR,
    "key": "k",
    "key_ttl": HOUR,
    "delivery": "at_least_once",
    "correlation_id": "c",
    "metadata": {"a": 1},
    "retry": None,
    "run_at": None,
}
SCHEDULE: dict[str, Any] = {
    "action": "send",
    "input": {"to": "ada"},
    "description": "d",
    "enabled": True,
    "note": "n",
    "hand_over": "jobs",
    "policies": Policies(),
    "max_runs": 3,
    "interval_bounds_ms": None,
    "delete_after_completion": False,
}
MANY = {"which": JobFilter(), "before": "z", "limit": 5, "by": "ada", "reason": "why"}

CALLS: dict[str, dict[str, dict[str, Any]]] = {
    "client": {
        "enqueue": {"action": "mail.send", "input": {"to": "ada"}, **OPTIONS},
        "enqueue_many": {
            "action": "mail.send",
            "inputs": [{"to": "ada"}],
            "keys": ["k"],
            **{name: value for name, value in OPTIONS.items() if name != "key"},
        },
        "job": {"job_id": NOBODY},
        "result": {"job_id": NOBODY},
        "cancel": {"job_id": NOBODY, "by": "ada", "reason": "why"},
        "retry": {"job_id": NOBODY, "reset_attempts": True, "by": "ada", "reason": "why"},
        "delete": {"job_id": NOBODY, "by": "ada", "reason": "why"},
    },
    "schedules": {
        "create": {"name": "a", "trigger": cron("0 9 * * *"), **SCHEDULE},
        "ensure": {"name": "b", "trigger": "0 9 * * *", **SCHEDULE},
        "create_many": {"new": [NewSchedule("c", "@daily", "send")]},
        "update": {"name": "digest", "version": None, "trigger": "@daily", **SCHEDULE},
        "pause": {"name": "digest", "note": "n"},
        "resume": {"name": "digest", "note": "n"},
        "delete": {"name": "gone", "version": 1},
        "get": {"name": "digest"},
        "list": {"after": "a", "limit": 5},
        "events": {"name": "digest", "limit": 5},
        "preview": {"name": "digest", "n": 3},
    },
    "notes": {
        "create": {"name": "n", "value": Note("x")},
        "update": {"name": "n", "change": Note("y"), "version": 1},
        "upsert": {"name": "n", "value": Note("y")},
        "get_or_create": {"name": "n", "value": Note("y")},
        "get": {"name": "n"},
        "delete": {"name": "gone", "version": 1},
        "list": {"prefix": "n", "after": "a", "limit": 5},
    },
    "collection": {
        "of": {"scope": user("ada")},
        "find_by": {"attribute": "text", "value": "x", "limit": 5},
        "parse": {"words": {"text": "x"}},
    },
    "admin": {
        "job": {"job_id": NOBODY},
        "jobs": {"which": JobFilter(), "before": "z", "limit": 5},
        "job_page": {"which": JobFilter(), "before": "z", "limit": 5},
        "cancel": {"job_id": NOBODY, "by": "ada", "reason": "why"},
        "retry": {"job_id": NOBODY, "reset_attempts": True, "by": "ada", "reason": "why"},
        "delete": {"job_id": NOBODY, "by": "ada", "reason": "why"},
        "count_many": {"which": JobFilter(queue="mail"), "limit": 5},
        "cancel_many": MANY,
        "retry_many": {**MANY, "reset_attempts": True},
        "delete_many": MANY,
        "cleanup": {"retention": None, "limit": 5},
        "pause": {"queue": "mail", "note": "n", "by": "ada"},
        "pause_all": {"note": "n", "by": "ada"},
        "resume": {"queue": "mail"},
        "limit": {"queue": "mail", "job_limit": 5, "workspace_limit": 2},
        "locks": {"after": "a", "limit": 5},
        "release_lock": {"name": "nightly"},
        "workers": {"alive_ms": 30_000, "limit": 5},
        "health": {"alive_ms": 30_000},
        "erase": {"scope": "user:nobody"},
        "why": {"schedule": KEY, "at": NOW},
    },
    "operated": {
        "get": {"which": KEY},
        "show": {"which": KEY, "times": 3, "limit": 5},
        "search": {"which": ScheduleFilter(), "after": KEY, "limit": 5},
        "pause": {"which": KEY, "note": "n", "by": "ada"},
        "resume": {"which": KEY, "by": "ada"},
        "release": {"which": KEY, "by": "ada"},
        "delete": {"which": ScheduleKey("mail", "user:ada", "gone"), "by": "ada"},
        "preview": {"which": KEY, "n": 3},
        "events": {"which": KEY, "limit": 5},
        "occurrences": {
            "which": KEY,
            "before": NOW,
            "since": NOW - HOUR,
            "states": None,
            "limit": 5,
        },
        "quarantined": {"limit": 5},
        "run_now": {"which": KEY, "request_id": "once"},
        "backfill": {"which": KEY, "since": NOW - HOUR, "until": NOW, "step": 5},
        "coverage": {"which": KEY, "since": NOW - HOUR, "until": NOW},
        "why": {"which": KEY, "at": NOW},
    },
    "acting": {
        "enqueue": {"action": "mail.send", "input": {"to": "ada"}},
        "job": {"job_id": NOBODY},
        "result": {"job_id": NOBODY},
        "cancel": {"job_id": NOBODY, "reason": "why"},
        "schedules": {"flow": "mail"},
    },
    "app": {
        "schedules": {"flow": "mail"},
        "acting_for": {"who": user("ada"), "by": "ada"},
    },
}
NOT_CALLED = {
    "client": {"enqueue_in", "enqueue_many_in"},  # these need a connection
    "schedules": {"create_in"},
    "notes": {"count"},
    "admin": {
        # Without arguments, or with a function only.
        *("all_paused", "clock_ms", "counts", "queues", "repair", "resume_all"),
        "recompute_zones",
    },
}
CLASSES: dict[str, type[Any]] = {
    "client": Client,
    "schedules": ScopedSchedules,
    "notes": ScopedCollection,
    "admin": Admin,
    "operated": ScheduleAdmin,
}
"""Classes of which every public method is called."""


def objects() -> dict[str, Any]:
    app = Duly("memory:", flows=[flow])
    store = MemoryStore()
    app.on(store)
    notes = ResourceCollection(store, "notes", Note, indexes=["text"])
    asyncio.run(app.schedules("mail").of(user("ada")).create("digest", "@daily", action="send"))
    return {
        "app": app,
        "client": app.client,
        "schedules": app.schedules("mail").of(user("ada")),
        "collection": notes,
        "notes": notes.of(SYSTEM),
        "admin": app.admin,
        "operated": app.admin.schedules,
        "acting": app.acting_for(user("ada")),
    }


async def fault(method: Callable[..., Any], arguments: dict[str, Any]) -> str | None:
    """Return an error that is not one of Duly's, or that means "retry later", as text."""
    try:
        answer = method(**arguments)
        if inspect.isawaitable(answer):
            await answer
    except (BackendUnavailable, InternalError) as error:
        return f"{error!a:.150}"
    except DulyError:
        return None
    except Exception as error:  # noqa: BLE001 - the test looks for these
        return f"{error!a:.150}"
    return None


@pytest.mark.parametrize(
    ("which", "name"), [(which, name) for which, verbs in CALLS.items() for name in verbs]
)
def test_only_errors_of_duly_are_raised(which: str, name: str) -> None:
    right = CALLS[which][name]
    method = getattr(objects()[which], name)

    async def look() -> list[str]:
        calls = [(argument, value) for argument in right for value in SPOILT]
        found = [await fault(method, right | {argument: value}) for argument, value in calls]
        return [
            f"{argument}={value!a:.40}: {error}"
            for (argument, value), error in zip(calls, found, strict=True)
            if error is not None
        ]

    assert asyncio.run(look()) == []


@pytest.mark.parametrize("which", CLASSES)
def test_every_method_is_called(which: str) -> None:
    public = {
        name
        for name, _ in inspect.getmembers(CLASSES[which], inspect.isfunction)
        if not name.startswith("_")
    }
    assert public == CALLS[which].keys() | NOT_CALLED.get(which, set())


def test_every_option_is_given() -> None:
    assert JobOptions.__annotations__.keys() == OPTIONS.keys()
    assert ScheduleOptions.__annotations__.keys() | {"action"} == SCHEDULE.keys()
