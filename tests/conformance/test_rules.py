"""Each rule is implemented once: replacing its function fails a case on every backend.

The stores are opened as applications open them, with fast paths. A fast path with its own copy of
a rule would not see the change.
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

from duly.stores import MemoryStore, open_store
from duly.testing import ManualClock
from duly.testing.conformance import OpenStore, StoreConformance
from duly.testing.conformance.suite import START
from tests.conformance.emptied import Emptied
from tests.conformance.planted_rules import RULES, Rule
from tests.conformance.test_broken import FAILURES

SUITES = Path(inspect.getfile(StoreConformance)).parent

Fresh = Callable[[], OpenStore]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Fresh:
    """Return a function that empties a backend and returns a function that opens it."""
    if request.param == "memory":
        return lambda: MemoryStore
    if request.param == "sqlite":
        made: Path = request.getfixturevalue("sqlite_file")
        numbers = count()
        return lambda: by_url(f"sqlite:///{shutil.copy(made, tmp_path / f'{next(numbers)}.db')}")
    emptied: Emptied = request.getfixturevalue("emptied")
    return lambda: by_url(emptied.empty())


def by_url(url: str) -> OpenStore:
    """Return a function that opens the store of a URL, with its fast paths."""
    return lambda clock: open_store(url, clock=clock)


@contextmanager
def planted(rule: Rule) -> Iterator[None]:
    """Replace the function by the wrong one in every module that has imported it."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules():
            for name, value in list(vars(module).items()):
                if value is rule.right:
                    patch.setattr(module, name, rule.wrong)
        forget_answers()
        try:
            yield
        finally:
            forget_answers()


def modules() -> list[ModuleType]:
    """Return the loaded modules of the package."""
    return [each for name, each in sys.modules.items() if name.partition(".")[0] == "duly"]


def forget_answers() -> None:
    """Clear the package's caches, since cached statements contain answers of rules."""
    for module in modules():
        for value in list(vars(module).values()):
            if callable(clear := getattr(value, "cache_clear", None)):
                clear()


def run_case(rule: Rule, opened: OpenStore) -> None:
    """Run the case of a rule, as pytest would."""
    clock, suite = ManualClock(START), rule.suite()
    case = getattr(suite, rule.case)
    with asyncio.Runner() as suite.runner:
        store = opened(clock)
        fixtures = {"store": store, "clock": clock}
        try:
            case(**{each: fixtures[each] for each in inspect.signature(case).parameters})
        finally:
            suite.runner.run(store.close())


@pytest.mark.planted("rules")
@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_changed_rule_fails_a_case_on_every_backend(rule: Rule, fresh: Fresh) -> None:
    run_case(rule, fresh())
    # The first run loaded every module that the case needs, so none imports the wrong function.
    with planted(rule), pytest.raises(FAILURES) as caught:
        run_case(rule, fresh())
    failed_in = Path(caught.traceback[-1].path)
    assert failed_in.is_relative_to(SUITES), f"{rule.place} broke {failed_in}, not the case"
