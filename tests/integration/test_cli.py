"""Operators' commands on real databases: tables, JSON, exit codes, confirmations, redaction."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from duly.cli import main
from duly.flows.collections import ScheduleCollection
from duly.model.schedule_writes import ScheduleKey
from duly.model.scopes import user
from duly.stores import open_store
from tests.integration.operated import SECRET, SSN, fill

DIGEST = "crm/user:ada/digest"
APP = "tests.integration.operated:app"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the URL of a filled database that tests only read."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('cli')}/duly.db"
        asyncio.run(fill(url))
        yield url
        return
    server = request.getfixturevalue("postgres_server")
    made = server.create()
    asyncio.run(fill(made))
    yield made
    server.drop(made)


@pytest.fixture
def fresh(tmp_path: Path) -> str:
    """Return the URL of a filled database that the test may change."""
    url = f"sqlite:///{tmp_path}/duly.db"
    asyncio.run(fill(url))
    return url


def duly(url: str, *words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, words, env={"DULY_URL": url}, input=answer)


def told(url: str, *words: str) -> str:
    result = duly(url, *words)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def asked(url: str, *words: str) -> Any:
    return json.loads(told(url, *words, "--json"))


def schedule_id(url: str) -> str:
    return str(asked(url, "schedules", "show", DIGEST)["schedule"]["id"])


def test_schedules_are_listed(filled: str) -> None:
    lines = told(filled, "schedules", "list").splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["schedule", "state", "hand-over"],
        ["crm/user:ada/digest", "active", "jobs"],
        ["crm/system/nightly", "active", "jobs"],
        ["crm/user:ada/weekly", "paused", "jobs"],
    ]
    assert "2026-03-02 15:00:00Z" in lines[1]
    assert "Europe/Berlin" in lines[1]


def test_paused_external_schedules_are_shown(fresh: str) -> None:
    async def add() -> None:
        store = open_store(fresh)
        mine = ScheduleCollection(store, "crm").of(user("ada"))
        await mine.create("outside", "0 9 * * *", action="send", hand_over="external")
        await store.close()

    asyncio.run(add())
    told(fresh, "schedules", "pause", "crm/user:ada/outside")
    words = ("schedules", "list", "--hand-over", "external", "--state", "paused")
    (found,) = asked(fresh, *words)["schedules"]
    assert (found["name"], found["state"], found["hand_over"]) == ("outside", "paused", "external")
    _, line = told(fresh, *words).splitlines()
    assert line.split()[:3] == ["crm/user:ada/outside", "paused", "external"]
    kinds = asked(fresh, "schedules", "events", "crm/user:ada/outside")["events"]
    assert [each["kind"] for each in kinds] == ["created", "paused"]
    told(fresh, "schedules", "resume", "crm/user:ada/outside")
    shown = asked(fresh, "schedules", "show", "crm/user:ada/outside")["schedule"]
    assert shown["state"] == "active"


def test_filters_and_pages_of_schedules(filled: str) -> None:
    page = asked(filled, "schedules", "list", "--limit", "2")
    assert [each["key"] for each in page["schedules"]] == [DIGEST, "crm/system/nightly"]
    assert page["next"] == "crm/system/nightly"
    rest = asked(filled, "schedules", "list", "--limit", "2", "--after", page["next"])
    assert [each["key"] for each in rest["schedules"]] == ["crm/user:ada/weekly"]
    assert rest["next"] is None
    for words in (
        ("--state", "paused"),
        ("--name", "week"),
        ("--owner", "user:ada", "--flow", "crm", "--name", "w"),
    ):
        found = asked(filled, "schedules", "list", *words)["schedules"]
        assert [each["name"] for each in found] == ["weekly"]
    assert "no schedule matches" in told(filled, "schedules", "list", "--flow", "other")


def test_json_of_a_schedule_has_stable_names(filled: str) -> None:
    detail = asked(filled, "schedules", "show", DIGEST)
    assert list(detail) == [
        "schedule",
        "next_times",
        "coverage",
        "occurrences",
        "events",
        "share",
    ]
    assert list(detail["schedule"]) == [
        *("id", "key", "flow", "scope", "name", "action", "state", "words", "zone", "trigger"),
        *("next_at", "next_run_at", "runs_left", "max_runs", "delete_after_completion"),
        *(
            "hand_over",
            "policies",
            "description",
            "note",
            "error",
            "input_preview",
            "version",
            "created_at",
            "updated_at",
        ),
    ]
    assert detail["schedule"]["next_at"] == "2026-03-02T15:00:00.000Z"
    assert [each["state"] for each in detail["occurrences"]] == ["failed", "succeeded"]
    assert detail["occurrences"][0]["nominal_at"] == "2026-03-02T14:00:00.000Z"
    assert [each["kind"] for each in detail["events"]] == ["created"]


def test_one_schedule_for_people(filled: str) -> None:
    text = told(filled, "schedules", "show", DIGEST)
    for part in ("crm.greet", "next times", "the last seven days", "ledger", "history", "user_ssn"):
        assert part in text
    assert "nothing yet" in told(filled, "schedules", "show", "crm/user:ada/weekly")


def test_why(filled: str) -> None:
    answer = asked(filled, "schedules", "why", DIGEST, "--at", "2026-03-02T14:00:00+01:00")
    assert answer["verdict"] == "fired"
    assert answer["facts"]["late_ms"] == "1000"
    wall = asked(filled, "schedules", "why", DIGEST, "--at", "2026-03-02T14:00")
    assert wall == answer
    text = told(filled, "schedules", "why", DIGEST, "--at", "2026-03-02T13:30:00Z")
    assert text.startswith("not a time\n")
    assert "the one before is Mon 2026-03-02 14:00 +0100" in text
    for edge in ("0001-01-01T00:00+14:00", "9999-12-31T23:59-23:59"):
        refused = duly(filled, "schedules", "why", DIGEST, "--at", edge)
        assert (refused.exit_code, refused.stderr[:6]) == (2, "error:")
        assert "calendar" in refused.stderr
    wrong = duly(filled, "schedules", "why", DIGEST, "--at", "yesterday")
    assert (wrong.exit_code, "ISO-8601" in wrong.stderr) == (2, True)


def test_occurrences(filled: str) -> None:
    lines = told(filled, "occurrences", "list", DIGEST).splitlines()
    assert [line.split()[3] for line in lines[1:]] == ["failed", "succeeded"]
    found = asked(filled, "occurrences", "list", DIGEST, "--state", "failed")
    assert [each["nominal_at"] for each in found["occurrences"]] == ["2026-03-02T14:00:00.000Z"]
    page = asked(filled, "occurrences", "list", DIGEST, "--limit", "1")
    older = asked(filled, "occurrences", "list", DIGEST, "--before", page["next"])
    assert [each["state"] for each in older["occurrences"]] == ["succeeded"]
    none = told(filled, "occurrences", "list", DIGEST, "--since", "2026-03-02T16:00")
    assert none == "no occurrence matches\n"


def test_preview_and_events(filled: str) -> None:
    assert len(told(filled, "schedules", "preview", DIGEST, "-n", "3").splitlines()) == 4
    assert len(asked(filled, "schedules", "preview", DIGEST, "-n", "3")["times"]) == 3
    events = asked(filled, "schedules", "events", "crm/user:ada/weekly")["events"]
    assert [(each["kind"], each["note"]) for each in events] == [
        ("created", None),
        ("paused", "on holiday"),
    ]
    assert told(filled, "schedules", "quarantine") == "no row is quarantined\n"


def test_jobs(filled: str) -> None:
    dead = asked(filled, "jobs", "list", "--state", "dead", "--action", "crm.greet")["jobs"]
    assert len(dead) == 2
    job = dead[0]["id"]
    detail = asked(filled, "jobs", "show", job)
    assert [each["state"] for each in detail["events"]][-1] == "dead"
    assert "payload" not in detail["job"]
    text = told(filled, "jobs", "show", job)
    assert "tries" in text
    assert "history" in text
    by_schedule = asked(filled, "jobs", "list", "--schedule", schedule_id(filled))["jobs"]
    assert [each["state"] for each in by_schedule] == ["dead", "succeeded"]
    page = asked(filled, "jobs", "list", "--limit", "1")
    assert page["next"] == page["jobs"][0]["id"]
    assert "no job matches" in told(filled, "jobs", "list", "--queue", "other")


def test_queues_workers_locks(filled: str) -> None:
    queues = {each["queue"]: each for each in asked(filled, "queues", "list")["queues"]}
    assert queues["mail"]["is_paused"]
    assert (queues["default"]["counts"], queues["default"]["capped"]) == ({"dead": 2}, [])
    assert "paused" in told(filled, "queues", "list")
    assert "duly run" in told(filled, "workers")
    assert asked(filled, "workers") == {"workers": []}
    assert told(filled, "locks", "list") == "no lock is held\n"  # it has expired
    assert asked(filled, "locks", "list") == {"locks": [], "next": None}


def test_health_reports_by_exit_code(filled: str) -> None:
    """Two schedules have been due for hours and no planner runs."""
    result = duly(filled, "health", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    levels = {each["name"]: each["level"] for each in report["findings"]}
    assert report["level"] == "bad"
    assert (levels["planning"], levels["index"], levels["dead jobs"]) == ("bad", "ok", "warning")
    doctor = duly(filled, "doctor")
    assert doctor.exit_code == 1
    assert "clocks" in doctor.stdout


LOOKS = (
    ("schedules", "list"),
    ("schedules", "show", DIGEST),
    ("schedules", "show", "crm/user:ada/weekly"),
    ("schedules", "events", "crm/user:ada/weekly"),
    ("schedules", "why", "crm/user:ada/weekly", "--at", "2026-03-09T09:00"),
    ("occurrences", "list", DIGEST),
    ("jobs", "list"),
    ("queues", "list"),
)


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["people", "json"])
def test_no_secret_is_printed(filled: str, form: tuple[str, ...]) -> None:
    jobs = [each["id"] for each in asked(filled, "jobs", "list")["jobs"]]
    for words in (*LOOKS, *(("jobs", "show", job) for job in jobs)):
        said = told(filled, *words, "--app", APP, "--url", filled, *form)
        assert SECRET not in said, words
        assert SSN not in said, words


def test_values_are_hidden_without_the_application(filled: str) -> None:
    """Without it the command does not know that `ssn` is a secret, so it hides every value."""
    alone = told(filled, "schedules", "show", DIGEST)
    known = told(filled, "schedules", "show", DIGEST, "--app", APP, "--url", filled)
    assert SSN not in alone + known
    assert ("Ada" in alone, "Ada" in known) == (False, True)
    assert "user_ssn" in alone


def test_unknown_names_are_refused_with_a_hint(filled: str) -> None:
    wrong = duly(filled, "schedules", "show", "crm/user:ada/digst")
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert "did you mean 'digest'?" in wrong.stderr
    for words in (
        ("schedules", "pause", "sch_nobody"),
        ("schedules", "why", "sch_nobody", "--at", "2026-03-02T14:00"),
        ("jobs", "show", "job_nobody"),
        ("jobs", "retry", "job_nobody"),
        ("locks", "release", "nothing", "--yes"),
    ):
        assert duly(filled, *words).exit_code == 1, words
    assert duly(filled, "schedules", "show", "a/b/c/d").exit_code == 2
    assert duly(filled, "schedules", "list", "--state", "asleep").exit_code == 2


def test_no_database_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["schedules", "list"], env={"DULY_URL": None})
    assert result.exit_code == 2
    assert "pass --url or --app, or set DULY_URL" in result.stderr
    assert duly("memory:", "jobs", "list").exit_code == 2
    assert duly("oracle://x", "jobs", "list").exit_code == 2


def test_unreachable_and_empty_databases_are_errors(tmp_path: Path) -> None:
    missing = tmp_path / "typo.db"
    result = duly(f"sqlite:///{missing}", "schedules", "list")
    assert (result.exit_code, "duly schema init" in result.stderr) == (3, True)
    assert not missing.exists()
    missing.touch()
    result = duly(f"sqlite:///{missing}", "schedules", "list")
    assert (result.exit_code, "duly schema init" in result.stderr) == (3, True)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        result = duly(f"postgresql://duly@127.0.0.1:{port}/x", "health")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: ")


def test_schedules_are_paused_and_resumed(fresh: str) -> None:
    paused = told(fresh, "schedules", "pause", DIGEST, "--note", "repairs", "--by", "ops")
    assert paused == f"{DIGEST} is paused\n"
    assert asked(fresh, "schedules", "show", DIGEST)["schedule"]["note"] == "repairs"
    assert told(fresh, "schedules", "resume", DIGEST).startswith(f"{DIGEST} is resumed, next run ")
    events = asked(fresh, "schedules", "events", DIGEST)["events"]
    assert [(each["kind"], each["by"]) for each in events] == [
        ("created", "user:ada"),
        ("paused", "ops"),
        ("resumed", "operator"),
    ]
    refused = duly(fresh, "schedules", "release", DIGEST)
    assert (refused.exit_code, "not quarantined" in refused.stderr) == (1, True)


def test_run_and_backfill(fresh: str) -> None:
    """No planner ran in the last twelve hours."""
    now = datetime.now(UTC)
    words = ("--from", (now - timedelta(hours=12)).isoformat(), "--to", now.isoformat())
    kept = duly(fresh, "schedules", "backfill", DIGEST, *words, answer="n\n")
    assert (kept.exit_code, "--yes" in kept.stderr) == (1, True)
    here = ("--app", APP, "--url", fresh)
    unknown = duly(fresh, "schedules", "backfill", DIGEST, *words, "--yes")
    assert (unknown.exit_code, "--app MODULE:NAME" in unknown.stderr) == (2, True)
    made = asked(fresh, "schedules", "backfill", DIGEST, *words, "--yes", *here)
    assert made == {"planned": 12, "left_alone": 0, "times": 12}
    again = told(fresh, "schedules", "backfill", DIGEST, *words, "--yes", *here)
    assert again.endswith("0 jobs created, 12 times left alone\n")
    nightly = ("schedules", "run", "crm/nightly", "--request-id", "t1", *here)
    assert duly(fresh, "schedules", "run", "crm/nightly").exit_code == 2
    first = asked(fresh, *nightly)["occurrence"]
    assert (first["reason"], first["state"]) == ("run_now", "planned")
    assert first["job_id"] in told(fresh, *nightly)
    wrong = duly(fresh, "schedules", "backfill", DIGEST, "--from", "a", "--to", "b", "--yes")
    assert wrong.exit_code == 2
    early = ("--from", "2020-01-01", "--to", "2020-01-02", "--yes")
    assert duly(fresh, "schedules", "backfill", DIGEST, *early, *here).exit_code == 2


def test_deleting_asks_for_confirmation(fresh: str) -> None:
    found = schedule_id(fresh)
    for answer in ("n\n", ""):
        kept = duly(fresh, "schedules", "delete", DIGEST, answer=answer)
        assert kept.exit_code == 1
        assert schedule_id(fresh) == found
    gone = duly(fresh, "schedules", "delete", DIGEST, answer="y\n")
    assert (gone.exit_code, gone.stdout) == (0, f"{DIGEST} is deleted\n")
    assert duly(fresh, "schedules", "show", DIGEST).exit_code == 1
    answer = asked(fresh, "schedules", "why", found, "--at", "2026-03-02T14:00:00Z")
    assert answer["verdict"] == "failed"
    rows = asked(fresh, "occurrences", "list", found)["occurrences"]
    # All rows but the two that ran.
    assert {row["state"] for row in rows[:-2]} == {"missed", "withdrawn"}
    assert told(fresh, "schedules", "delete", "crm/user:ada/weekly", "--yes")


def test_jobs_are_retried_cancelled_and_deleted(fresh: str) -> None:
    dead = asked(fresh, "jobs", "list", "--state", "dead")["jobs"][0]["id"]
    assert told(fresh, "jobs", "retry", dead, "--by", "ops") == f"{dead} is queued\n"
    assert asked(fresh, "jobs", "cancel", dead)["job"]["state"] == "cancelled"
    again = duly(fresh, "jobs", "retry", dead)
    assert (again.exit_code, "cannot be retried" in again.stderr) == (1, True)
    assert duly(fresh, "jobs", "delete", dead, answer="n\n").exit_code == 1
    assert told(fresh, "jobs", "delete", dead, "--yes") == f"{dead} is deleted\n"
    history = asked(fresh, "jobs", "show", dead)["events"]
    assert [each["actor"] for each in history][-3:] == ["ops", "operator", "operator"]
    assert duly(fresh, "jobs", "prune").exit_code == 1
    assert asked(fresh, "jobs", "prune", "--yes")["removed"] > 0


def test_queues_are_paused_resumed_and_limited(fresh: str) -> None:
    assert told(fresh, "queues", "resume", "mail") == "queue mail is open\n"
    told(fresh, "queues", "pause", "mail", "--note", "again")
    told(fresh, "queues", "limit", "mail", "--jobs", "3", "--per-workspace", "2")
    (mail,) = [q for q in asked(fresh, "queues", "list")["queues"] if q["queue"] == "mail"]
    assert (mail["job_limit"], mail["workspace_limit"], mail["is_paused"]) == (3, 2, True)
    told(fresh, "queues", "limit", "mail", "--any")
    for words in ((), ("--jobs", "3", "--any")):
        assert duly(fresh, "queues", "limit", "mail", *words).exit_code == 2
    assert duly(fresh, "queues", "limit", "mail", "--jobs", "0").exit_code == 2


def test_all_queues_are_paused_and_resumed(fresh: str) -> None:
    refused = duly(fresh, "queues", "pause", "*")
    assert (refused.exit_code, "queues pause --all" in refused.stderr) == (2, True)
    for words in ((), ("mail", "--all")):
        assert duly(fresh, "queues", "pause", *words).exit_code == 2
        assert duly(fresh, "queues", "resume", *words).exit_code == 2
    paused = told(fresh, "queues", "pause", "--all", "--note", "moving")
    assert paused == "all queues are paused\n"
    assert {q["note"] for q in asked(fresh, "queues", "list")["queues"]} == {
        "moving (operator)",
        "repairs (ops)",
    }
    assert "still paused" in told(fresh, "queues", "resume", "mail")
    assert "all are paused" in duly(fresh, "health").stdout
    assert told(fresh, "queues", "resume", "--all") == "the pause of all queues has ended\n"
    assert not any(q["is_paused"] for q in asked(fresh, "queues", "list")["queues"])


def test_doctor_repairs_the_index(fresh: str) -> None:
    asyncio.run(_lose_a_row(fresh))
    assert "has no index row" in told(
        fresh, "schedules", "why", DIGEST, "--at", "2026-03-02T15:00:00Z"
    )
    report = json.loads(duly(fresh, "doctor", "--repair", "--json").stdout)
    assert report["repaired"]["added"] == 1
    levels = {each["name"]: each["level"] for each in report["findings"]}
    assert levels["index"] == "ok"


async def _lose_a_row(url: str) -> None:
    store = open_store(url)
    await store.remove(ScheduleKey("crm", "user:ada", "digest"))
    await store.close()


def test_releasing_a_lock_asks_for_confirmation(fresh: str) -> None:
    asyncio.run(_lock(fresh))
    assert [each["name"] for each in asked(fresh, "locks", "list")["locks"]] == ["nightly"]
    assert duly(fresh, "locks", "release", "nightly", answer="n\n").exit_code == 1
    assert told(fresh, "locks", "release", "nightly", "--yes") == (
        "lock nightly of ada is released\n"
    )
    assert asked(fresh, "locks", "list")["locks"] == []


async def _lock(url: str) -> None:
    store = open_store(url)
    await store.acquire_lock("nightly", "ada", 3_600_000)
    await store.close()


def test_successful_commands_print_no_log_records(fresh: str) -> None:
    """Runs in a separate process, where log records would go to standard error."""
    duly = Path(sys.executable).with_name("duly")
    command = [str(duly), "schedules", "list", "--url", fresh]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (DIGEST in run.stdout, run.stderr) == (True, "")
