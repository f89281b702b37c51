"""Pytest fixtures for applications that use Duly.

Put `pytest_plugins = ["duly.testing.pytest_plugin"]` into the conftest.py at the root of the tests.
"""

from __future__ import annotations

from typing import Protocol

import pytest

from duly.app import Duly
from duly.testing.simulation import Forwarded
from duly.testing.simulation import fast_forward as let_pass


class FastForward(Protocol):
    """The type of the `fast_forward` fixture; see duly.testing.simulation.fast_forward."""

    async def __call__(
        self,
        app: Duly,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> Forwarded: ...


@pytest.fixture
def fast_forward() -> FastForward:
    """Return the function to call as `await fast_forward(app, days=30)`."""
    return let_pass
