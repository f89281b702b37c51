"""Fixtures of the unit tests: a manual clock, and an empty store that uses it."""

import pytest
from tests.samples import NOW

from duly.stores.memory import MemoryStore
from duly.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)
