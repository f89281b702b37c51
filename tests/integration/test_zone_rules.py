"""New zone rules in real processes: a keeper moves next times; an older node keeps them so."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from duly.app import Duly
from duly.flows.flow import Flow
from duly.model.upkeep import Recomputed
from duly.runtime import KeeperOptions, keeper
from duly.runtime.table_walks import Walk
from duly.testing import ManualClock
from duly.triggers.instants import from_ms
from tests.integration.working import in_loop, open_app
from tests.samples import NOW

ROOT = Path(__file__).parent.parent.parent
MARCH = "2026-03-02T12:00:00+00:00"
BEFORE, AFTER = "2026-07-01T07:00:00+00:00", "2026-07-01T08:00:00+00:00"
"""09:00 in Berlin on 1 July, with and without summer time."""

NODE = """
import asyncio, json, logging, sys, zoneinfo
zoneinfo.reset_tzpath([sys.argv[1]])
from datetime import datetime
from duly import cron
from duly.app import Duly
from duly.model.schedules import Definition, ScheduleId
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.testing import ManualClock

async def main():
    app = Duly(sys.argv[2], clock=ManualClock(datetime.fromisoformat(sys.argv[4])))
    key = ScheduleKey("mail", "user:ada", "summer")
    async with app:
        kept = None
        if sys.argv[3] == "create":
            trigger = cron("0 9 1 7 *", tz="Europe/Berlin")
            write = ScheduleWrite(key, ScheduleId("sch_1"), Definition(trigger, "send"))
            await app.store.put_schedules([write])
        elif sys.argv[3] == "keep":
            kept = (await app.keeper().run_once()).moved
        else:
            kept = (await app.admin.recompute_zones()).moved
        rows = [row.run_at_ms for row in await app.store.list_rows()]
        facts = [fact.detail for fact in await app.store.schedule_events(ScheduleId("sch_1"))]
        rules = await app.store.zone_rules()
    print(json.dumps({"moved": kept, "rows": rows, "facts": facts, "rules": rules}))

logging.basicConfig(format="%(message)s")
asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/zones.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def rules(folder: Path, version: str, like: str) -> str:
    """Write zone files in which Berlin has the rules of another zone; return their folder."""
    (folder / "Europe").mkdir(parents=True)
    zone = resources.files("tzdata.zoneinfo").joinpath(*like.split("/"))
    (folder / "Europe" / "Berlin").write_bytes(zone.read_bytes())
    (folder / "tzdata.zi").write_text(f"# version {version}\n")
    return str(folder)


def node(folder: str, url: str, step: str) -> tuple[dict[str, Any], str]:
    """Run a process with those rules; return what it found and its log."""
    command = [sys.executable, "-c", NODE, folder, url, step, MARCH]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def at(found: dict[str, Any]) -> list[str]:
    return [from_ms(ms).isoformat() for ms in found["rows"]]


def test_keeper_follows_new_rules_once(url: str, tmp_path: Path) -> None:
    """Berlin abolishes summer time and gets the rules of Lagos, UTC+1 all year."""
    old = rules(tmp_path / "old", "2031a", "Europe/Berlin")
    new = rules(tmp_path / "new", "2031b", "Africa/Lagos")
    made, _ = node(old, url, "create")
    assert at(made) == [BEFORE]
    first, _ = node(old, url, "keep")
    assert (first["moved"], at(first), first["rules"]) == (0, [BEFORE], "2031a")
    moved, said = node(new, url, "keep")
    assert (moved["moved"], at(moved), moved["rules"]) == (1, [AFTER], "2031b")
    assert "zone rules 2031b moved the next times of 1 schedules, such as sch_1" in said
    hour_ms = 3_600_000
    times = {"old_ms": made["rows"][0], "new_ms": made["rows"][0] + hour_ms}
    assert moved["facts"][-1] == {"tz": times}
    again, said = node(new, url, "keep")
    assert (again["moved"], at(again), "zone rules" in said) == (0, [AFTER], False)
    older, _ = node(old, url, "keep")
    assert (older["moved"], at(older), older["rules"]) == (0, [AFTER], "2031b")


def test_operator_can_recompute_zones(url: str, tmp_path: Path) -> None:
    """Works also if the rules have no known version."""
    old = rules(tmp_path / "old", "2031a", "Europe/Berlin")
    unknown = rules(tmp_path / "unknown", "?", "Africa/Lagos")
    node(old, url, "create")
    left, _ = node(unknown, url, "keep")
    assert (left["moved"], at(left)) == (0, [BEFORE])
    asked, _ = node(unknown, url, "ask")
    assert (asked["moved"], at(asked), asked["rules"]) == (1, [AFTER], None)


@in_loop
async def test_zone_rules_are_checked_at_start_and_daily() -> None:
    app, store = open_app("memory:", Flow("work"), clock=ManualClock(NOW))
    async with app:
        often = app.keeper(KeeperOptions(upkeep_period_s=0))
        for _ in range(3):
            await often.run_once()
        assert (store.count("zone_rules"), store.count("recompute_zones")) == (3, 1)
        daily = app.keeper()
        for _ in range(3):
            await daily.run_once()
        # Each of the four walks prunes occurrences, events and the audit log in turn.
        assert (store.count("zone_rules"), store.count("prune_ledger")) == (4, 3 * 4)


@in_loop
async def test_installed_zone_rules_not_in_use_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper, "rules_on_disk", lambda: "2999z")
    async with Duly("memory:") as app:
        await app.keeper().run_once()
    assert any("zone rules 2999z are installed" in each.getMessage() for each in caplog.records)


@in_loop
async def test_a_long_walk_continues_in_the_next_round() -> None:
    cursors: list[str | None] = []

    async def step(cursor: str | None) -> Recomputed:
        cursors.append(cursor)
        return Recomputed(cursor=None if len(cursors) == 120 else f"rows:{len(cursors)}")

    walk = Walk(step, period_s=10, most=50)
    for now, expected in ((0, 50), (1, 100), (2, 120), (11, 120), (12, 170)):
        await walk.go_on(now)
        assert len(cursors) == expected
    assert cursors[:121] == [None, *(f"rows:{number}" for number in range(1, 120)), None]
