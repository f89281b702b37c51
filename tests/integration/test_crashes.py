"""A process killed at any step of a verb leaves a definition together with its index row."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.model.index import IndexHealth
from duly.model.index_rows import Claimed
from duly.model.schedules import Schedule
from duly.stores import open_store
from duly.stores.port import Store
from tests.integration import crashes
from tests.property.derived_rows import check_derived_rows

ROOT = Path(__file__).parent.parent.parent
STEPS_MAX = 40


class Victims:
    """Runs each command in a forked process that is killed at a given step."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, url: str, verb: str, step: int) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"url": url, "verb": verb, "step": step}) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    command = [sys.executable, "-m", "tests.integration.crashes"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Victims(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/crash.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


async def _reset(url: str, *, with_schedule: bool) -> None:
    store = open_store(url)
    await store.delete_schedule(crashes.KEY)
    if with_schedule:
        await crashes.create(store)
    await store.close()


async def _look(store: Store) -> tuple[Schedule | None, list[str], IndexHealth]:
    rows = await store.list_rows()
    return (
        await store.get_schedule(crashes.KEY),
        [row.trigger for row in rows],
        await store.index_health(),
    )


async def _state(url: str) -> str:
    """Return which of the legal states the database is in; fail on any other."""
    store = open_store(url)
    schedule, triggers, health = await _look(store)
    check_derived_rows(store)
    await store.close()
    assert health.missing == 0
    if schedule is None:
        assert triggers == [], "a row without its schedule"
        return "absent"
    assert len(triggers) == 1, "a schedule without its row"
    after = schedule.definition.trigger == crashes.AFTER.trigger
    assert ("30 17" in triggers[0]) is after, "the row and its schedule disagree"
    return "after" if after else "before"


@pytest.mark.parametrize(
    ("verb", "begins", "ends"),
    [
        ("create", "absent", "before"),
        ("change", "before", "after"),
        ("delete", "before", "absent"),
    ],
)
def test_killed_writer_leaves_all_or_nothing(
    victims: Victims, url: str, verb: str, begins: str, ends: str
) -> None:
    seen = set()
    for step in range(STEPS_MAX):
        asyncio.run(_reset(url, with_schedule=begins == "before"))
        answer = victims.run(url, verb, step)
        state = asyncio.run(_state(url))
        seen.add(state)
        if answer == "done":
            assert state == ends
            break
        assert answer == "killed"
        assert state == begins, f"step {step} of {verb} left a half-written state"
    else:
        pytest.fail(f"{verb} takes more than {STEPS_MAX} steps")
    assert seen == {begins, ends}
    assert step > 3, "the verb was killed at too few steps to prove anything"


async def _claim_again(url: str) -> list[Claimed]:
    store = open_store(url)
    claimed = await store.claim_due(crashes.FAR_FUTURE_MS)
    check_derived_rows(store)
    await store.close()
    return claimed


def test_killed_claimer_leaves_rows_due(victims: Victims, url: str) -> None:
    for step in range(STEPS_MAX):
        asyncio.run(_reset(url, with_schedule=True))
        answer = victims.run(url, "claim", step)
        left = asyncio.run(_claim_again(url))
        if answer == "done":
            assert left == []
            break
        assert answer == "killed"
        assert len(left) == 1, f"step {step} lost or doubled the occurrence"
    else:
        pytest.fail(f"a claim takes more than {STEPS_MAX} steps")
    assert step > 2
