"""Tests that no planted secret appears in any output, with real processes and databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from tools.reference.commands import commands as every_command

from tests.leaks import reads
from tests.leaks.application import SECRETS
from tests.leaks.product import APP, ROOT, Process, found_in
from tests.leaks.scenario import DEBUG, SCHEDULES, ScenarioOutcome, fill, play
from tests.servers import PostgresServer

BANNER = "duly: dashboard and API at "


@dataclass
class Outputs:
    """The outputs of the application while it ran, and after."""

    url: str
    outcome: ScenarioOutcome
    pages: dict[str, str]
    streams: dict[str, str]
    answers: dict[str, str]
    probes: dict[str, str]
    lines: dict[str, list[str]]


@pytest.fixture(
    scope="module",
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.extended)],
)
def outputs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outputs]:
    """Yield the outputs of one run of the scenario for each kind of database."""
    if request.param == "sqlite":
        yield run_and_read(f"sqlite:///{tmp_path_factory.mktemp('leaks')}/duly.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create()
    yield run_and_read(url)
    server.drop(url)


def run_and_read(url: str) -> Outputs:
    """Run the scenario and read all outputs."""
    outcome = fill(url)
    words = ("run", APP, "--queue", "held", "--port", "0", "--drain", "0", "--log", "json", *DEBUG)
    with Process(words, url) as server:
        banner = server.until(lambda found: [each for each in found if each.startswith(BANNER)])
        base_url = banner[0].removeprefix(BANNER).strip()
        lines = play(outcome, base_url, url)
        with httpx.Client(base_url=base_url, timeout=30) as client:
            reads.sign_in(client)
            reads.submit(client, "/job/retry", id=outcome.jobs["fail"])
            reads.submit(client, "/job/retry", id="no-such-job")
            job = f"/job?id={outcome.jobs['hold']}"
            streams = {job: reads.stream(client, job, "half-way")}
            pages = reads.crawl(client)
            streams |= {page: reads.stream(client, page) for page in ("/", "/jobs", "/schedules")}
            answers = outcome.answers | reads.api(base_url)
            found = reads.probes(client)
    lines["run"] = server.lines
    return Outputs(url, outcome, pages, streams, answers, found, lines)


def test_pages(outputs: Outputs) -> None:
    for name, job_id in outputs.outcome.jobs.items():
        page = outputs.pages[f"/job?id={job_id}"]
        assert "[redacted]" in page, name
    whole = "".join(outputs.pages.values())
    for path in ("/queues", "/workers", "/locks", "/quarantine", "/audit", "/health"):
        assert path in outputs.pages
    for name in SCHEDULES:
        assert any("/schedule?" in path and f"name={name}" in path for path in outputs.pages), name
        assert any("/schedules/edit" in path and f"name={name}" in path for path in outputs.pages)
    for shown in ("was refused", "not yet with", "half-way", "logged in as", "job.retry"):
        assert shown in whole
    assert found_in(outputs.pages) == []


def test_streams(outputs: Outputs) -> None:
    (job, *_) = outputs.streams
    assert "half-way" in outputs.streams[job]
    assert all("event: parts" in text for text in outputs.streams.values())
    assert found_in(outputs.streams) == []


def test_answers_of_the_api(outputs: Outputs) -> None:
    own = outputs.answers["GET /api/flows/work/my/schedules/own"]
    assert '"note":"own"' in own
    assert '"failed"' in outputs.answers["GET /api/flows/work/my/schedules/often/history"]
    assert "accepted" in outputs.answers["POST /api/flows/work/schedules/ada/daily/dispatch"]
    for place in ("work/schedules/ada/unheard", "rough/schedules/ada/unresolved"):
        assert "raised" in outputs.answers[f"POST /api/flows/{place}/dispatch"]
    assert "raised" in outputs.answers["POST /api/flows/rough/schedules/ada/computed/dispatch"]
    assert "raised" in outputs.answers["POST /api/flows/work/webhooks/broken"]
    assert found_in(outputs.answers) == []


def test_metrics_and_probes(outputs: Outputs) -> None:
    assert 'duly_jobs{state="dead"}' in outputs.probes["/metrics"]
    assert '"status"' in outputs.probes["/healthz"] + outputs.probes["/readyz"]
    assert found_in(outputs.probes) == []


def test_log_lines(outputs: Outputs) -> None:
    texts = {name: "".join(lines) for name, lines in outputs.lines.items()}
    assert "was refused" in texts["worker"]
    assert "DEBUG" in texts["tick"]
    for event in (
        *("job.attempt", "schedule.created", "operator.wish", "dispatch.resolver"),
        *("dispatch.input", "dispatch.authorize_failed", "webhook.input"),
        "http.authenticate_failed",
    ):
        assert f'"event": "{event}"' in texts["run"], event
    for event in ("job.dead", "job.attempt"):
        assert f'"event": "{event}"' in texts["worker"], event
    assert found_in(texts) == []


def test_commands(outputs: Outputs) -> None:
    known = {" ".join(path[1:]) for path, _ in every_command()}
    groups = {name.split()[0] for name in known if " " in name}
    reading = set(reads.reading_commands(outputs.outcome))
    unlisted = known - reading - reads.WRITES - reads.NO_DATABASE - groups - {""}
    assert unlisted == set(), "add new commands to reading_commands(), WRITES or NO_DATABASE"
    printed = reads.commands(outputs.outcome, outputs.url, known)
    whole = "".join(printed.values())
    for job_id in outputs.outcome.jobs.values():
        assert job_id in whole
    for name in SCHEDULES:
        assert f"work/user:ada/{name}" in whole
    assert "was refused" in whole
    assert found_in(printed) == []


def test_no_traceback_is_logged_as_it_is() -> None:
    for file in (ROOT / "src/duly").rglob("*.py"):
        text = file.read_text()
        assert "log.exception(" not in text, f"{file}: log traceback_of(error) instead"
        assert "exc_info=" not in text, file


@pytest.mark.planted("leaks")
def test_a_leak_would_be_found() -> None:
    texts = {"page": f"<p>{SECRETS['job-ssn']}</p>", "log": "nothing"}
    assert found_in(texts) == [("page", "job-ssn")]
    assert len(set(SECRETS.values())) == len(SECRETS)
