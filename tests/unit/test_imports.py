"""Tests that every module can be imported first, so that no import cycle is hidden."""

import pkgutil
import subprocess
import sys

import pytest

import duly

LAYERS = ("app", "dispatch", "flows", "operate", "runtime", "stores", "web")
"""The other packages have no code in their `__init__`."""

# Run in a new process with one thread, because forking with several may hang. Dependencies are
# imported once; each fork then imports one module of Duly first.
SCRIPT = """
import os, sys
import duly.stores.sql.opening, duly.web.dashboard.site

for name in [each for each in sys.modules if each.split(".")[0] == "duly"]:
    del sys.modules[name]
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            __import__(name)
        except BaseException:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        print(name)
"""


def modules() -> list[str]:
    """Return the names of all modules of the layers."""
    found = pkgutil.walk_packages(duly.__path__, "duly.")
    return [each.name for each in found if each.name.split(".")[1] in LAYERS]


def failing(names: list[str]) -> list[str]:
    """Return the modules that cannot be imported first."""
    command = [sys.executable, "-c", SCRIPT, *names]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.extended
@pytest.mark.timeout(600)  # a process for each module
def test_every_module_can_be_imported_first() -> None:
    assert failing(modules()) == []


def test_a_module_that_fails_is_noticed() -> None:
    assert failing(["duly.nothing", "duly.app"]) == ["duly.nothing"]
