"""`duly tick`, run as a command against a served application on SQLite."""

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from duly.clock import SystemClock
from duly.flows.collections import ScheduleCollection
from duly.model.scopes import user
from duly.stores import open_store
from duly.testing import ManualClock
from duly.triggers import once
from tests.integration.http.site import SECRET, served

APPLICATION = """
from duly import Duly, Flow

mail = Flow("mail")


@mail.action
async def send() -> None: ...


app = Duly("{url}", flows=[mail])
empty = Duly("memory:")
"""


def duly(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DULY_")}
    return subprocess.run(
        [sys.executable, "-c", "from duly.cli import main; main()", "tick", *words],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


async def _due(url: str) -> None:
    now = SystemClock().now()
    # Created with a clock one minute behind; otherwise the schedule would have no next time.
    store = open_store(url, clock=ManualClock(now - timedelta(minutes=1)))
    mine = ScheduleCollection(store, "mail").of(user("ada"))
    await mine.create("k", once(now - timedelta(seconds=20)), action="send", hand_over="http")
    await store.close()


def test_once_posts_what_is_due_and_says_how_it_went(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/duly.db"
    (tmp_path / "mysite.py").write_text(APPLICATION.format(url=url))
    asyncio.run(_due(url))
    asked: list[str] = []

    async def endpoint(scope: object, receive: object, send: object) -> None:
        assert isinstance(scope, dict)
        if scope["type"] == "http":
            asked.append(scope["path"])
            start = {"type": "http.response.start", "status": 202, "headers": []}
            await send(start)  # type: ignore[operator]
            await send({"type": "http.response.body", "body": b"{}"})  # type: ignore[operator]

    with served(endpoint) as port:
        there = f"http://127.0.0.1:{port}"
        words = ("mysite:app", "--url", there, "--once")
        first = duly(tmp_path, *words, DULY_DISPATCH_SECRETS=SECRET)
        second = duly(tmp_path, *words, DULY_DISPATCH_SECRETS=SECRET)
    assert first.stdout == "posted 1: 1 accepted, 0 to be posted again, 0 failed\n", first.stderr
    assert second.stdout == "posted 0: 0 accepted, 0 to be posted again, 0 failed\n"
    assert asked == ["/api/flows/mail/schedules/ada/k/dispatch"]


def test_missing_settings_are_named(tmp_path: Path) -> None:
    (tmp_path / "mysite.py").write_text(APPLICATION.format(url="memory:"))
    for words, environment, hint in (
        (("mysite:app", "--once"), {"DULY_DISPATCH_SECRETS": SECRET}, "DULY_BASE_URL"),
        (("mysite:app", "--once", "--url", "http://h"), {}, "DULY_DISPATCH_SECRETS"),
        (
            ("mysite:empty", "--once", "--url", "http://h"),
            {"DULY_DISPATCH_SECRETS": SECRET},
            "flows",
        ),
        (("mysite:app", "--once", "--url", "h"), {"DULY_DISPATCH_SECRETS": SECRET}, "base URL"),
    ):
        done = duly(tmp_path, *words, **environment)
        assert (done.returncode, hint in done.stderr) == (2, True), done.stderr
