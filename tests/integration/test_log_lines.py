"""Log records that operators rely on: one record per event, with ids and counts."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from duly import Duly, Flow, RetryPolicy, cron, every, user, workspace
from duly.app import Duly as Application
from duly.cli.log_lines import JsonLines, TextLines
from duly.flows.collections.requests import NewSchedule
from duly.runtime import WorkerOptions
from duly.testing.clock import ManualClock
from tests.integration.working import in_loop

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/operating/logs.md"
START = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Lines(logging.Handler):
    """A handler that keeps Duly's records as parsed JSON and can be waited on."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonLines())
        self.lines: list[dict[str, Any]] = []
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))
        for event, number, future in self._waiting:
            if len(self.of(event)) >= number and not future.done():
                future.set_result(None)

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == event]

    async def until(self, event: str, number: int = 1) -> list[dict[str, Any]]:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((event, number, future))
        if len(self.of(event)) < number:
            await future
        return self.of(event)


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Return a handler that records what is logged from now on."""
    logger, made = logging.getLogger("duly"), Lines()
    before = logger.level
    logger.addHandler(made)
    logger.setLevel(logging.DEBUG)
    yield made
    logger.setLevel(before)
    logger.removeHandler(made)


def an_app(clock: ManualClock | None = None) -> Duly:
    flow = Flow("mail")

    @flow.action(queue="letters", retry=RetryPolicy(attempts=1))
    async def send(to: str = "everybody") -> str:
        if to == "nobody":
            raise ValueError("no such person")
        return f"sent to {to}"

    return Application("memory:", flows=[flow], clock=clock)


@in_loop
async def test_a_created_schedule_is_logged_once(lines: Lines) -> None:
    async with an_app() as app:
        mine = app.schedules("mail").of(user("ada"), by="agent:7", workspace="acme")
        made = await mine.create("digest", every(minutes=5), action="send", input="hunter22")
        await mine.update("digest", description="another")
        await mine.ensure("digest", every(minutes=5), action="send")
        ours = app.schedules("mail").of(workspace("globex"))
        await ours.ensure("daily", cron("0 9 * * *", tz="Europe/Berlin"), action="send")
        await ours.create_many([NewSchedule("other", every(hours=1), action="send")])
    first, second, third = lines.of("schedule.created")
    assert first == {
        "at": first["at"],
        "level": "info",
        "logger": "duly.operate.schedule_log",
        "message": "schedule mail/user:ada/digest was created: mail.send, Every 5 minutes",
        "event": "schedule.created",
        "schedule_id": made.id,
        "flow": "mail",
        "scope": "user:ada",
        "schedule": "digest",
        "workspace": "acme",
        "action": "mail.send",
        "queue": "letters",
        "rule": "Every 5 minutes",
        "zone": "UTC",
        "interval_ms": 300_000,
        "by": "agent:7",
    }
    assert (second["schedule"], second["workspace"], second["zone"]) == (
        *("daily", "globex", "Europe/Berlin"),
    )
    assert "interval_ms" not in second
    assert third["schedule"] == "other"
    assert "hunter22" not in json.dumps(lines.lines)


@in_loop
async def test_a_planner_logs_nonzero_counts(lines: Lines) -> None:
    clock = ManualClock(START)
    async with an_app(clock) as app:
        planner = app.planner()
        await planner.run_once()
        assert lines.of("planner.planned") == []
        for name in ("ada", "bo"):
            mine = app.schedules("mail").of(user(name))
            await mine.create("digest", every(minutes=5), action="send", input=name)
        clock.advance(minutes=20)
        await planner.run_once()
    (line,) = lines.of("planner.planned")
    counts = ("rows", "planned", "missed", "skipped", "finished", "quarantined")
    assert [line[each] for each in counts] == [2, 2, 6, 0, 0, 0]
    assert line["message"] == "planner: 2 jobs of 2 schedules"


@in_loop
async def test_an_attempt_is_logged_with_lateness_and_outcome(lines: Lines) -> None:
    clock = ManualClock(START)
    app = an_app(clock)
    async with app:
        for name in ("ada", "nobody"):
            mine = app.schedules("mail").of(user(name))
            await mine.create("digest", every(minutes=5), action="send", input=name)
        clock.advance(minutes=5, seconds=2)
        await app.planner().run_once()
        plain = await app.client.enqueue("mail.send", "bo", queue="letters")
        worker = app.worker(WorkerOptions(queues=("letters",)))
        running = asyncio.create_task(worker.run())
        found = {line["job_id"]: line for line in await lines.until("job.attempt", 3)}
        worker.stop()
        await running
    made = found.pop(plain.job_id)
    assert (made["outcome"], made["queue"], made["attempt"]) == ("succeeded", "letters", 1)
    assert "latency_ms" not in made
    assert isinstance(made["duration_ms"], int)
    by_workspace = {line["workspace"]: line for line in found.values()}
    for name, outcome in (("user:ada", "succeeded"), ("user:nobody", "failed")):
        line = by_workspace[name]
        assert (line["outcome"], line["action"]) == (outcome, "mail.send")
        assert line["schedule_id"].startswith("sch_")
        assert line["nominal_at"] == (START + timedelta(minutes=5)).isoformat()
        # The clock stands two seconds after the run time, less what the handler took.
        assert 2_000 - line["duration_ms"] <= line["latency_ms"] <= 2_000


HOSTILE = "no\n2026-03-02 12:00:00,000 ERROR forged\r\x1b[2J\x9b31m\u202e\u2028\ud800"


@pytest.mark.parametrize("form", [TextLines, JsonLines])
def test_an_error_text_forges_no_record(form: type[TextLines]) -> None:
    """The error text contains newlines and escape sequences; it is logged as in production."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="utf-8", newline="")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form())
    error = ValueError(HOSTILE)
    record = logging.makeLogRecord(
        {"msg": "failed: %s", "args": (HOSTILE,), "exc_info": (ValueError, error, None)}
    )
    handler.emit(record)
    stream.flush()
    text = written.getvalue().decode()
    assert not set(text) & set("\r\x1b\x9b\u202e\u2028")
    lines = text.rstrip("\n").split("\n")
    assert "\\x1b[2J" in text or "\\u001b[2J" in text
    if form is JsonLines:
        (line,) = lines
        assert json.loads(line)["message"] == f"failed: {HOSTILE}"
    else:
        assert [line for line in lines[1:] if not line.startswith("  | ")] == []
        assert "  | ValueError" in text


def test_the_page_names_every_event() -> None:
    events = {
        event
        for file in (ROOT / "src/duly").rglob("*.py")
        for event in re.findall(r'"event": "([a-z_.]+)"', file.read_text())
    }
    told = re.findall(r"^\| `([a-z_]+\.[a-z_.]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(told) == sorted(events)


def test_lines_are_json_with_secrets_redacted() -> None:
    text = io.StringIO()
    logger = logging.getLogger("duly.sample")
    for form in (JsonLines(), TextLines()):
        handler = logging.StreamHandler(text)
        handler.setFormatter(form)
        logger.addHandler(handler)
    try:
        int("Authorization: Bearer abcdefghijklmnop")
    except ValueError:
        logger.exception("it %s", "broke", extra={"event": "a.b", "at_all": None, "when": START})
    finally:
        logger.handlers.clear()
    first, *rest = text.getvalue().splitlines()
    line = json.loads(first)
    assert [line[each] for each in ("level", "logger", "message", "event")] == [
        *("error", "duly.sample", "it broke", "a.b"),
    ]
    assert line["when"] == str(START)
    assert "at_all" not in line
    assert "ValueError" in line["exception"]
    assert rest[0].endswith("ERROR it broke")
    assert "abcdefghijklmnop" not in text.getvalue()
