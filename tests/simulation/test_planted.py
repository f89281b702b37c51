"""Tests that the simulation finds every planted bug within some seeds."""

import inspect
import re

import pytest

from duly.testing.simulation.checks import checks, losses, runs, times
from tests.simulation.planted import BUGS, Plant, seeds_until_caught


@pytest.mark.planted("simulation")
@pytest.mark.parametrize(("plant", "promises"), BUGS, ids=[plant.__name__ for plant, _ in BUGS])
def test_a_planted_bug_is_caught(plant: Plant, promises: frozenset[str]) -> None:
    count, broken = seeds_until_caught(plant, promises)
    print(f"{plant.__name__}: caught by {sorted(broken)} after {count} seeds")
    assert count is not None, f"{plant.__doc__}; found only {sorted(broken)}"


def test_every_promise_is_broken_by_some_bug() -> None:
    sources = "".join(map(inspect.getsource, (checks, times, runs, losses)))
    promises = set(re.findall(r'Violation\(\s*"([a-z]+)"', sources))
    assert promises == {promise for _, broken in BUGS for promise in broken}
