"""The call path of one schedule and of one job through the layers, on PostgreSQL.

Run with `-s` to see the modules in the order in which they are first entered. Each call stack
goes down the layers once: a caller, a verb of the store, the engine, the store's reads, and pure
rules at the end, which call only rules and values.
"""

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import duly
from duly import Duly, Flow, cron
from duly.model.jobs import JobState
from duly.model.ledger import OccurrenceState
from duly.model.schedules import ScheduleId
from duly.model.scopes import user
from duly.runtime import PlannerOptions, WorkerOptions

ROOT = Path(duly.__file__).parent

LAYERS = {
    "app": "caller",
    "flows": "caller",
    "runtime": "caller",
    "operate": "caller",
    "stores": "stores",
    "engine": "engine",
    "rules": "pure",
    "model": "pure",
    "triggers": "pure",
    "errors": "pure",
    "clock": "pure",
    "settings": "pure",
}
DOWNWARD = re.compile(r"(caller )?(stores )?(engine )?(stores )?(pure )?")
HINT = "stores caller "
"""The thread that listens to the database wakes a loop: the only upward call."""


class Trace:
    """The functions of duly that were entered, in order, and their stacks of layers."""

    def __init__(self) -> None:
        self.functions: dict[CodeType, str] = {}
        self.stacks: set[str] = set()

    def note(self, frame: FrameType, event: str, _arg: object) -> None:
        # A generator is entered from the code that consumes it.
        if event != "call" or frame.f_code.co_name.startswith("<"):
            return
        module = module_of(frame.f_code)
        if module is not None:
            self.functions.setdefault(frame.f_code, module)
            self.stacks.add(layers_of(frame))

    @property
    def modules(self) -> list[str]:
        return list(dict.fromkeys(self.functions.values()))

    def report(self, title: str) -> str:
        head = f"{title}: {len(self.functions)} functions in {len(self.modules)} files"
        return "\n".join(
            [head, *(f"  {number:>3} {each}" for number, each in enumerate(self.modules, 1))]
        )


def module_of(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else None


def layers_of(frame: FrameType) -> str:
    """Return the layers of duly's frames, outermost first, without consecutive duplicates."""
    found: list[str] = []
    each: FrameType | None = frame
    while each is not None:
        module = module_of(each.f_code)
        if module is not None:
            layer = LAYERS[module.removesuffix(".py").split("/")[0]]
            if not found or found[-1] != layer:
                found.append(layer)
        each = each.f_back
    return "".join(f"{layer} " for layer in reversed(found))


@contextmanager
def traced() -> Iterator[Trace]:
    trace = Trace()
    earlier = sys.getprofile()
    threading.setprofile(trace.note)  # the store starts its threads on demand
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(earlier)
        threading.setprofile(None)


async def a_schedule(url: str) -> Trace:
    """Create a schedule, plan it and return the trace."""
    flow = Flow("mail")

    @flow.action
    async def send(_input: str) -> None: ...

    async with Duly(url, flows=[flow]) as app:
        with traced() as trace:
            mine = app.schedules("mail").of(user("ada"))
            created = await mine.create("digest", cron("* * * * *"), action=send, input="hello")
            await app.planner(PlannerOptions(look_ahead_s=3_600)).run_once()
        listed = await app.store.list_occurrences(ScheduleId(created.id))
        assert {each.state for each in listed} == {OccurrenceState.PLANNED}
    return trace


async def a_job(url: str) -> Trace:
    """Enqueue a job, run it and return the trace."""
    flow, ran = Flow("mail"), asyncio.Event()

    @flow.action
    async def send(_input: str) -> None:
        ran.set()

    async with Duly(url, flows=[flow]) as app:
        with traced() as trace:
            job = await app.client.enqueue(send, "hello")
            worker = app.worker(WorkerOptions(isolated=0))
            running = asyncio.create_task(worker.run())
            await ran.wait()
            worker.stop()
            await running
        found = await app.store.get_job(job.job_id)
        assert found is not None
        assert found.state is JobState.SUCCEEDED
    return trace


@pytest.mark.parametrize(
    ("title", "run"), [("create to ledger", a_schedule), ("enqueue to finish", a_job)]
)
def test_layers_are_crossed_downward_once(
    title: str, run: Callable[[str], Coroutine[Any, Any, Trace]], postgres_url: str
) -> None:
    trace = asyncio.run(run(postgres_url))
    print(f"\n{trace.report(title)}")
    assert {stack for stack in trace.stacks if not DOWNWARD.fullmatch(stack)} <= {HINT}
    entered = {LAYERS[each.removesuffix(".py").split("/")[0]] for each in trace.modules}
    assert entered == {"caller", "stores", "engine", "pure"}


@pytest.mark.planted("trace")
def test_a_rule_that_reads_the_store_is_noticed() -> None:
    assert not DOWNWARD.fullmatch("caller stores engine pure stores ")
    assert not DOWNWARD.fullmatch("caller stores engine stores engine ")
    assert DOWNWARD.fullmatch("caller stores engine stores pure ")
