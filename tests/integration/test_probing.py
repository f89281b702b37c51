"""Processes without pages: their probes and metrics, and how they stop."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from duly.cli import main
from tests.leaks.application import SECRETS
from tests.leaks.product import APP, Process

BANNER = "duly: probes and metrics at "


@pytest.mark.parametrize("role", ["worker", "planner"])
def test_a_loop_serves_only_probes_and_metrics(tmp_path: Path, role: str) -> None:
    words = (role, APP, "--health", "127.0.0.1:0")
    with Process(words, f"sqlite:///{tmp_path}/duly.db") as process:
        told = process.until(lambda lines: [each for each in lines if each.startswith(BANNER)])
        bearer = {"authorization": f"Bearer {SECRETS['metrics-token']}"}
        with httpx.Client(base_url=told[0].removeprefix(BANNER).strip(), timeout=30) as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            assert client.get("/readyz").json()["status"] == "ok"
            assert client.get("/metrics").status_code in (303, 401)
            assert "duly_up 1.0" in client.get("/metrics", headers=bearer).text
            for path in ("/", "/jobs", "/api/openapi.json", "/sign-in"):
                assert client.get(path).status_code == 404
        assert process.end() == 0


@pytest.mark.parametrize("where", ["8788", ":8788", "127.0.0.1:", "127.0.0.1:http", "h:99999"])
def test_an_invalid_health_address_is_refused(where: str) -> None:
    result = CliRunner().invoke(main, ["worker", APP, "--health", where])
    assert result.exit_code == 2
    assert "HOST:PORT" in result.stderr
