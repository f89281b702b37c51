"""File descriptors of this process: how many there are, and how many HTTP connections may use.

The database, the loops and the application's handlers need descriptors too, so connections get a
share and never all of them.
"""

from __future__ import annotations

import contextlib
import importlib
from types import ModuleType

from duly.errors import InvalidInput
from duly.settings import Settings

MAX_RAISED_DESCRIPTORS = 65_536
"""Programs that a handler starts may close every possible descriptor, which takes long for more."""
MAX_DEFAULT_CONNECTIONS = 1_000
MIN_DEFAULT_CONNECTIONS = 8
RESERVED_DESCRIPTORS = 128
"""For the database (three files for each SQLite connection), listeners, log, probes, and
connections that are about to be refused."""


def descriptor_limit() -> int | None:
    """Return how many descriptors this process may open; None: no limit is known."""
    resource = _resource()
    if resource is None:
        return None
    soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> int | None:
    """Raise the soft limit to the hard one, up to 65,536; return the limit that holds then.

    A system that does not allow it keeps its limit: connections get a share of that.
    """
    resource = _resource()
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = MAX_RAISED_DESCRIPTORS if hard == unlimited else min(hard, MAX_RAISED_DESCRIPTORS)
    if soft != unlimited and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # where the system does not allow it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def _resource() -> ModuleType | None:
    """Return the module of limits, which Windows has not."""
    try:
        return importlib.import_module("resource")
    except ImportError:
        return None


def connection_limit(settings: Settings, descriptors: int | None) -> int:
    """Return how many HTTP connections may be open at a time.

    Without a setting: half of the descriptors that are not reserved, from 8 to 1,000. The other
    half is left to the application's handlers. A setting that needs more descriptors than there
    are is refused.
    """
    chosen = settings.max_connections
    if descriptors is None:
        return chosen or MAX_DEFAULT_CONNECTIONS
    free = descriptors - RESERVED_DESCRIPTORS
    if chosen is None:
        return max(MIN_DEFAULT_CONNECTIONS, min(MAX_DEFAULT_CONNECTIONS, free // 2))
    if chosen > max(free, MIN_DEFAULT_CONNECTIONS):
        raise InvalidInput(
            f"max_connections (DULY_MAX_CONNECTIONS) is {chosen}; this process may open "
            f"{descriptors} descriptors and reserves {RESERVED_DESCRIPTORS} of them for the "
            f"database and files; lower it to {max(free, MIN_DEFAULT_CONNECTIONS)} or less, or "
            "raise the limit (ulimit -n, LimitNOFILE)"
        )
    return chosen
