"""Report a tool that a test needs and this machine does not have.

Outside CI the test is skipped with the reason. In CI (`CI=true`) it fails: every tool can be
installed there, and a skip would hide that nothing was checked.
"""

import os
from typing import NoReturn

import pytest


def is_ci() -> bool:
    """Return whether this run is a CI run."""
    return os.environ.get("CI") == "true"


def missing_tool(reason: str) -> NoReturn:
    """Skip the running test, or fail it in CI. The reason names the tool and how to install it."""
    if is_ci():
        pytest.fail(reason)
    pytest.skip(reason)
