"""Files in deploy/: alerts, dashboard, unit, image and manifests use only what the product has."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from duly import Context, Duly, Flow
from duly.cli import main
from duly.model.claims import ClaimRequest
from duly.model.jobs import WorkerId
from duly.rules.outcomes import Succeeded, decide
from duly.settings import Settings
from duly.web.dashboard.site import dashboard_app
from duly.web.operators.auth import AuthOptions, OperatorAuth
from duly.web.serving.descriptors import MAX_DEFAULT_CONNECTIONS, connection_limit
from tests.missing import missing_tool

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TOKEN = "scrape-scrape-scrape"  # noqa: S105
ALERTS = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
BOARD = json.loads((DEPLOY / "grafana/duly.json").read_text())
UNIT = DEPLOY / "systemd/duly.service"
IMAGE = (DEPLOY / "container/Containerfile").read_text()
MANIFESTS = [
    each
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for each in yaml.safe_load_all(file.read_text())
]
WORKLOADS = [each for each in MANIFESTS if each["kind"] in ("Deployment", "Job")]
PLAIN = {"DULY_TRUSTED_PROXIES"}
SETTINGS = set(re.findall(r'"(DULY_[A-Z_]+)"', (ROOT / "src/duly/settings.py").read_text()))


@cache
def answers() -> dict[str, httpx.Response]:
    """Return the responses of a running application to probes and the metrics scraper."""

    async def ask() -> dict[str, httpx.Response]:
        flow = Flow("crm")

        @flow.action
        async def send(ctx: Context) -> None: ...

        app = Duly("memory:", flows=[flow])
        await app.client.enqueue(send, None)
        claims = await app.store.claim_jobs(ClaimRequest(worker=WorkerId("w")))
        await app.store.finish([decide(job, Succeeded()) for job in claims.jobs])
        await app.client.enqueue(send, None)
        await app.schedule(send, 30)
        transport = httpx.ASGITransport(
            dashboard_app(app, OperatorAuth(AuthOptions(metrics_token=TOKEN)))
        )
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://duly", headers=headers
        ) as client:
            paths = ("/metrics", "/healthz", "/readyz", "/readyz?only=store")
            # The first request starts the count of the index; the second one reports it.
            await client.get("/metrics")
            return {path: await client.get(path) for path in paths}

    return asyncio.run(ask())


@cache
def exposed() -> dict[str, set[str]]:
    """Return the names of exposed samples with their labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(answers()["/metrics"].text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def check_expression(text: str) -> None:
    """Check that every metric and label of an expression exists."""
    used = re.findall(r"\b(duly_\w+)(?:\{([^}]*)\})?", text)
    assert used, text
    for name, selector in used:
        assert name in exposed(), f"{name} in {text}"
        assert set(re.findall(r"(\w+)!?=~?", selector)) <= exposed()[name], text
    for label in re.findall(r"by \((\w+)\)", text):
        assert any(label in exposed()[name] for name, _ in used), text


def leaf(words: list[str]) -> click.Context:
    """Return the context of the command that `words` call; raise on unknown words."""
    command: click.Command = main
    while isinstance(command, click.Group):
        command = command.commands[words[0]]
        words = words[1:]
    # Click caches the help option of the first context, so use the settings of the real command.
    return command.make_context(command.name, list(words), **main.context_settings)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_expressions_use_exposed_metrics(rule: dict[str, Any]) -> None:
    check_expression(rule["expr"])
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    for command in re.findall(r"`duly ([^`]+)`", rule["annotations"]["description"]):
        words = shlex.split(command)
        arguments = {"retry": ["job"], "release": ["crm/digest"]}.get(words[-1], [])
        leaf([*words, *arguments])


def test_required_alerts_exist() -> None:
    names = {rule["alert"].removeprefix("Duly") for rule in ALERTS}
    assert len(names) == len(ALERTS)
    assert names >= {
        *("LeaseNearlyLost", "RunsMissed", "TokenStuck", "PruneFailing", "IndexSilent"),
        *("Quarantine", "JobsDead", "DueBacklog", "PlannerNotRunning"),
    }


def test_alerts_are_the_documented_ones() -> None:
    """Compares name, expression, duration and severity, in order."""
    text = (ROOT / "docs/operating/alerts.md").read_text()
    told = re.findall(r"^\| \[(Duly\w+)\]\(#[^)]+\) \| `(.+)` \| (\w*) ?\| (\w+) \|$", text, re.M)
    assert told == [
        (rule["alert"], rule["expr"], rule.get("for", ""), rule["labels"]["severity"])
        for rule in ALERTS
    ]


@pytest.mark.extended
def test_prometheus_accepts_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        missing_tool("no promtool to check expressions: apt-get install prometheus")
    subprocess.run([promtool, "check", "rules", DEPLOY / "prometheus/alerts.yml"], check=True)


@pytest.mark.planted("deploy")
def test_an_unknown_metric_or_label_is_refused() -> None:
    for wrong in ("duly_planed_total", 'duly_jobs{status="dead"}', "sum by (flow) (duly_up)"):
        with pytest.raises(AssertionError):
            check_expression(wrong)


def test_panels_use_exposed_metrics() -> None:
    places: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            check_expression(target["expr"])
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places, panel["title"]
        assert place["x"] + place["w"] <= 24
        places |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_the_page_names_every_metric() -> None:
    page = (ROOT / "docs/operating/metrics.md").read_text()
    told = set(re.findall(r"`(duly_[a-z_]+)", page))
    families = text_string_to_metric_families(answers()["/metrics"].text)
    names = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if not family.name.endswith("_created")
    }
    assert told == names


def unit_lines() -> Iterator[tuple[str, str]]:
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name, value


def test_the_unit_is_hardened_and_drains() -> None:
    found = dict(unit_lines())
    for name, value in {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "DynamicUser": "yes",
        "PrivateTmp": "yes",
        "CapabilityBoundingSet": "",
        "KillSignal": "SIGTERM",
        "Restart": "on-failure",
    }.items():
        assert found[name] == value
    program, *words = shlex.split(found["ExecStart"])
    assert program.endswith("/bin/duly")
    asked = leaf(words).params
    assert asked["drain"] < int(found["TimeoutStopSec"])
    assert asked["host"] == "127.0.0.1"
    descriptors = int(found["LimitNOFILE"])
    assert connection_limit(Settings(), descriptors) == MAX_DEFAULT_CONNECTIONS


def test_documented_descriptors_give_the_documented_connections() -> None:
    text = " ".join((ROOT / "docs/operating/deploy.md").read_text().split())
    (told,) = re.findall(
        r"So ([\d,]+) descriptors make ([\d,]+) connections, and ([\d,]+) the most, ([\d,]+)", text
    )
    few, made, many, most = (int(each.replace(",", "")) for each in told)
    assert connection_limit(Settings(), few) == made
    assert connection_limit(Settings(), many) == most == MAX_DEFAULT_CONNECTIONS
    assert f"nofile={many}:{many}" in text
    assert f"LimitNOFILE={many}" in UNIT.read_text()


@pytest.mark.extended
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        missing_tool("no systemd-analyze to check the unit: apt-get install systemd")
    program = str(Path(sys.executable).with_name("duly"))
    copy = tmp_path / "duly.service"
    copy.write_text(UNIT.read_text().replace("/opt/reminders/venv/bin/duly", program))
    done = subprocess.run([verify, "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_runs_unprivileged_with_a_health_check() -> None:
    for base in re.findall(r"^FROM (\S+)", IMAGE, re.MULTILINE):
        assert re.fullmatch(r"[a-z]+:[\w.-]+", base), "not a plain image name"
        assert not base.endswith(":latest")
    (who,) = re.findall(r"^USER (\d+)$", IMAGE, re.MULTILINE)
    assert int(who) >= 1_000
    assert "STOPSIGNAL SIGTERM" in IMAGE
    (words,) = re.findall(r"^CMD (\[.*\])$", IMAGE, re.MULTILINE)
    asked = leaf(json.loads(words)).params
    exposed_ports = re.findall(r"^EXPOSE (.*)$", IMAGE, re.MULTILINE)[0].split()
    health_port = asked["health"].rpartition(":")[2]
    assert exposed_ports == [str(asked["port"]), health_port]
    (probe,) = re.findall(r"HEALTHCHECK.*\\\n\s+CMD (\[.*\])", IMAGE)
    (url,) = re.findall(r"http://\S+?(?=')", json.loads(probe)[2])
    assert url == f"http://127.0.0.1:{health_port}/healthz"
    compile(json.loads(probe)[2], "probe", "exec")


def test_a_container_that_runs_another_command_answers_its_health_check() -> None:
    text = (ROOT / "docs/operating/deploy.md").read_text()
    asked = re.search(r"'http://([0-9.:]+)/healthz'", IMAGE)
    assert asked is not None
    runs = re.findall(r"\$ docker run .*? reminders:1\.0\.0 (.*)", text)
    others = [shlex.split(each) for each in runs]
    assert others
    for words in others:
        assert leaf(words).params["health"] == asked[1]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each["metadata"]["name"])
def test_a_workload_uses_existing_commands_and_settings(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    asked = leaf(container["args"]).params
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    for variable in container["env"]:
        assert variable["name"] in SETTINGS
        if "value" in variable:
            assert Settings.from_environment({variable["name"]: variable["value"]}) != Settings()
            assert variable["name"] in PLAIN, "a secret is written in the file"
        else:
            assert variable["valueFrom"]["secretKeyRef"]["name"] == "duly"
    if workload["kind"] == "Job":
        assert container["args"] == ["schema", "upgrade", "$(DULY_URL)"]
        return
    (port,) = container["ports"]
    listens = asked["port"] if "port" in asked else int(asked["health"].rpartition(":")[2])
    host = asked["host"] if "port" in asked else asked["health"].rpartition(":")[0]
    assert (port["containerPort"], host) == (listens, "0.0.0.0")  # noqa: S104 - inside a pod
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[name]["httpGet"]
        assert probe["port"] == port["name"]
        assert answers()[probe["path"]].status_code == 200
    assert pod["terminationGracePeriodSeconds"] > asked.get("drain", 5)


def test_every_workload_may_be_disrupted_one_at_a_time() -> None:
    labels = {
        each["metadata"]["name"]: each["spec"]["selector"]["matchLabels"]
        for each in WORKLOADS
        if each["kind"] == "Deployment"
    }
    assert set(labels) == {"duly-api", "duly-planner", "duly-worker"}
    for each in MANIFESTS:
        name = each["metadata"]["name"]
        if each["kind"] == "Deployment":
            assert each["spec"]["template"]["metadata"]["labels"] == labels[name]
            assert each["spec"]["replicas"] >= 2
        elif each["kind"] == "PodDisruptionBudget":
            assert each["spec"]["selector"]["matchLabels"] == labels.pop(name)
        elif each["kind"] == "Service":
            assert each["spec"]["selector"] in labels.values()
    assert labels == {}, "a deployment has no disruption budget"


def test_readiness_can_be_limited_to_the_store() -> None:
    assert set(answers()["/readyz"].json()["checks"]) == {"store", "silent_index", "missed_runs"}
    assert set(answers()["/readyz?only=store"].json()["checks"]) == {"store"}
