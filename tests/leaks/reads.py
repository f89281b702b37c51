"""Read all outputs of a running application: pages, streams, API answers, metrics, commands."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import httpx
from click.testing import CliRunner

from duly.cli import main
from duly.web.api.operations import OPERATIONS
from tests.leaks.application import SECRETS
from tests.leaks.product import APP, environment
from tests.leaks.scenario import ADA, BEARER, SCHEDULES, ScenarioOutcome

MAX_PAGES = 1_000
_LINK = re.compile(r'(?:href|data-href|action)="([^"]+)"')
_TOKEN = re.compile(r'name="csrf" value="([^"]+)"')
WRITES = {
    *("demo", "doctor", "jobs cancel", "jobs delete", "jobs prune", "jobs retry"),
    *("locks release", "planner", "queues limit", "queues pause", "queues resume", "run"),
    *("schedules backfill", "schedules delete", "schedules pause", "schedules release"),
    *("schedules resume", "schedules run", "schema init", "schema upgrade", "serve", "tick"),
    "worker",
}
"""Commands that change something or keep running."""
NO_DATABASE = {"completion", "explain", "operator hash", "schema check", "schema print"}
"""Commands that read no jobs and no schedules."""


def sign_in(client: httpx.Client) -> None:
    """Sign in to the dashboard."""
    fields = {"name": "ada", "password": SECRETS["operator"], "next": "/"}
    assert client.post("/sign-in", data=fields).status_code == 303


def submit(client: httpx.Client, path: str, **fields: str) -> None:
    """Submit a form, as a button on a page does."""
    token = _TOKEN.search(client.get("/queue?name=nobody").text)
    assert token is not None
    answer = client.post(path, data={"csrf": token[1], "back": "/jobs", **fields})
    assert answer.status_code == 303


def crawl(client: httpx.Client) -> dict[str, str]:
    """Return all pages that can be reached by links from the first one, with their headers."""
    seen: dict[str, str] = {}
    waiting = ["/"]
    while waiting and len(seen) < MAX_PAGES:
        path = waiting.pop()
        if path in seen:
            continue
        answer = client.get(path)
        seen[path] = f"{answer.headers}\n{html.unescape(answer.text)}"
        waiting += [
            html.unescape(link).partition("#")[0]
            for link in _LINK.findall(answer.text)
            if link.startswith("/") and not link.startswith("//")
        ]
    assert not waiting, f"there are more than {MAX_PAGES} pages"
    return seen


def stream(client: httpx.Client, page: str, word: str = "") -> str:
    """Return the event stream of a page up to the event that contains `word`."""
    text = ""
    with client.stream("GET", "/live", params={"at": page}) as answer:
        for line in answer.iter_lines():
            text += f"{line}\n"
            if line.startswith("data:") and word in line:
                return text
    raise AssertionError(f"the stream of {page} ended without {word!r}")


def api(base_url: str) -> dict[str, str]:
    """Return the answers of all GET operations of the API, for each schedule of the scenario."""
    found: dict[str, str] = {}
    with httpx.Client(base_url=base_url, timeout=30) as client:
        for operation in OPERATIONS:
            if operation.method == "GET":
                for path in _paths(operation.path):
                    answer = client.get(path, headers=ADA | BEARER)
                    assert answer.status_code < 500 or path == "/api/tick", (path, answer.text)
                    found[f"GET {path}"] = answer.text
    return found


def _paths(template: str) -> Iterator[str]:
    for name in SCHEDULES if "{name}" in template else ("",):
        yield template.replace("{flow}", "work").replace("{name}", name)


def probes(client: httpx.Client) -> dict[str, str]:
    """Return the answers of the metrics and health endpoints."""
    bearer = {"authorization": f"Bearer {SECRETS['metrics-token']}"}
    return {
        path: client.get(path, headers=bearer).text for path in ("/metrics", "/healthz", "/readyz")
    }


def reading_commands(outcome: ScenarioOutcome) -> dict[str, list[tuple[str, ...]]]:
    """Return the commands that only read, each with the arguments to call it with."""
    keys = [f"work/user:ada/{name}" for name in ("daily", "often", "own", "resting")]
    each: list[tuple[str, ...]] = [(key,) for key in keys]
    return {
        "health": [()],
        "jobs list": [(), ("--state", "dead")],
        "jobs show": [(job_id,) for job_id in outcome.jobs.values()],
        "locks list": [()],
        "occurrences list": each,
        "queues list": [()],
        "schedules events": each,
        "schedules list": [()],
        "schedules preview": each,
        "schedules quarantine": [()],
        "schedules show": each,
        "schedules why": [(key, "--at", "2026-03-02T09:00Z") for key in keys],
        "workers list": [()],
        "workers": [()],
    }


def commands(outcome: ScenarioOutcome, url: str, known: set[str]) -> dict[str, str]:
    """Return the output of the reading commands: tables and JSON, with and without `--app`."""
    found: dict[str, str] = {}
    variables = environment(url)
    for command, cases in reading_commands(outcome).items():
        if command not in known:
            continue
        for case in cases:
            for form in (("--app", APP), ("--app", APP, "--json"), ("--json",)):
                words = (*command.split(), *case, *form)
                result = CliRunner().invoke(main, words, env=variables)
                assert result.exit_code in (0, 1), (words, result.output)
                found[" ".join(words)] = result.output
    return found
