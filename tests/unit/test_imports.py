"""Every module can be imported first: no cycle hides behind the order of other imports."""

import os
import pkgutil
import sys
from importlib import import_module

import pytest

import duly

LAYERS = ("dispatch", "flows", "operate", "runtime", "stores", "web")
"""Of the others, no package has code in its `__init__`."""


def modules() -> list[str]:
    """Return the names of all modules; packages are imported, and with them most dependencies."""
    found = pkgutil.walk_packages(duly.__path__, "duly.")
    import_module("duly.stores.sql.opening")
    import_module("duly.web.dashboard.site")
    return [each.name for each in found if each.name.split(".")[1] in LAYERS]


def import_alone(name: str) -> bool:
    """Import a module in a forked process that has imported nothing of duly."""
    child = os.fork()
    if child == 0:
        for each in [each for each in sys.modules if each.split(".")[0] == "duly"]:
            del sys.modules[each]
        try:
            __import__(name)
        except BaseException:  # noqa: BLE001
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return status == 0


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_module_can_be_imported_first() -> None:
    assert [name for name in modules() if not import_alone(name)] == []


def test_a_module_that_fails_is_noticed() -> None:
    assert not import_alone("duly.nothing")
