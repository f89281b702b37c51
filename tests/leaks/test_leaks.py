"""No secret that was planted anywhere can be read anywhere, of real processes and databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from tools.reference.commands import commands as every_command

from tests.leaks import looking
from tests.leaks.office import SECRETS
from tests.leaks.product import APP, ROOT, Process, found_in
from tests.leaks.story import DEBUG, SCHEDULES, Played, fill, play
from tests.servers import PostgresServer

BANNER = "duly: dashboard and API at "


@dataclass
class Watched:
    """What was seen of the product while it ran, and after."""

    url: str
    played: Played
    pages: dict[str, str]
    streams: dict[str, str]
    answers: dict[str, str]
    probes: dict[str, str]
    lines: dict[str, list[str]]


@pytest.fixture(
    scope="module",
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.extended)],
)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """The whole story, told once for each kind of database."""
    if request.param == "sqlite":
        yield watch(f"sqlite:///{tmp_path_factory.mktemp('leaks')}/duly.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create()
    yield watch(url)
    server.drop(url)


def watch(url: str) -> Watched:
    """Run it and look at it."""
    played = fill(url)
    words = ("run", APP, "--queue", "held", "--port", "0", "--drain", "0", "--log", "json", *DEBUG)
    with Process(words, url) as server:
        banner = server.until(lambda found: [each for each in found if each.startswith(BANNER)])
        base_url = banner[0].removeprefix(BANNER).strip()
        lines = play(played, base_url, url)
        with httpx.Client(base_url=base_url, timeout=30) as client:
            looking.sign_in(client)
            looking.wish(client, "/job/retry", id=played.jobs["fail"])
            looking.wish(client, "/job/retry", id="no-such-job")
            job = f"/job?id={played.jobs['hold']}"
            streams = {job: looking.stream(client, job, "half-way")}
            pages = looking.crawl(client)
            streams |= {page: looking.stream(client, page) for page in ("/", "/jobs", "/schedules")}
            answers = played.answers | looking.api(base_url)
            found = looking.probes(client)
    lines["run"] = server.lines
    return Watched(url, played, pages, streams, answers, found, lines)


def test_pages(seen: Watched) -> None:
    for name, job_id in seen.played.jobs.items():
        page = seen.pages[f"/job?id={job_id}"]
        assert "[redacted]" in page, name
    whole = "".join(seen.pages.values())
    for path in ("/queues", "/workers", "/locks", "/quarantine", "/audit", "/health"):
        assert path in seen.pages
    for name in SCHEDULES:
        assert any("/schedule?" in path and f"name={name}" in path for path in seen.pages), name
        assert any("/schedules/edit" in path and f"name={name}" in path for path in seen.pages)
    for shown in ("was refused", "not yet with", "half-way", "logged in as", "job.retry"):
        assert shown in whole
    assert found_in(seen.pages) == []


def test_streams(seen: Watched) -> None:
    (job, *_) = seen.streams
    assert "half-way" in seen.streams[job]
    assert all("event: parts" in text for text in seen.streams.values())
    assert found_in(seen.streams) == []


def test_answers_of_the_api(seen: Watched) -> None:
    own = seen.answers["GET /api/flows/work/my/schedules/own"]
    assert '"note":"own"' in own
    assert '"failed"' in seen.answers["GET /api/flows/work/my/schedules/often/history"]
    assert "accepted" in seen.answers["POST /api/flows/work/schedules/ada/daily/dispatch"]
    for place in ("work/schedules/ada/unheard", "rough/schedules/ada/unresolved"):
        assert "raised" in seen.answers[f"POST /api/flows/{place}/dispatch"]
    assert "raised" in seen.answers["POST /api/flows/rough/schedules/ada/computed/dispatch"]
    assert "raised" in seen.answers["POST /api/flows/work/webhooks/broken"]
    assert found_in(seen.answers) == []


def test_metrics_and_probes(seen: Watched) -> None:
    assert 'duly_jobs{state="dead"}' in seen.probes["/metrics"]
    assert '"status"' in seen.probes["/healthz"] + seen.probes["/readyz"]
    assert found_in(seen.probes) == []


def test_log_lines(seen: Watched) -> None:
    texts = {name: "".join(lines) for name, lines in seen.lines.items()}
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


def test_commands(seen: Watched) -> None:
    known = {" ".join(path[1:]) for path, _ in every_command()}
    groups = {name.split()[0] for name in known if " " in name}
    looked = set(looking.reading(seen.played))
    unheard = known - looked - looking.WRITES - looking.NO_DATABASE - groups - {""}
    assert unheard == set(), "say of a new command whether it reads"
    printed = looking.commands(seen.played, seen.url, known)
    whole = "".join(printed.values())
    for job_id in seen.played.jobs.values():
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
