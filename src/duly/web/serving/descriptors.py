"""File descriptors of this process, and the share that HTTP connections may use.

The database, the loops and the application's handlers need descriptors too.
"""

from __future__ import annotations

import contextlib
import importlib
from types import ModuleType

from duly.errors import InvalidInput
from duly.settings import Settings

MAX_RAISED_DESCRIPTORS = 65_536
"""Programs started by a handler may close every possible descriptor, which is slow for more."""
MAX_DEFAULT_CONNECTIONS = 1_000
MIN_DEFAULT_CONNECTIONS = 8
RESERVED_DESCRIPTORS = 128
"""For the database (three files per SQLite connection), listeners, log, probes, and connections
that are about to be refused."""


def descriptor_limit() -> int | None:
    """Return how many descriptors this process may open; None: unlimited or unknown."""
    resource = _resource()
    if resource is None:
        return None
    soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> int | None:
    """Raise the soft limit to the hard one, up to 65,536; return the resulting limit.

    If the system does not allow it, the limit is unchanged.
    """
    resource = _resource()
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = MAX_RAISED_DESCRIPTORS if hard == unlimited else min(hard, MAX_RAISED_DESCRIPTORS)
    if soft != unlimited and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # not allowed on this system
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def _resource() -> ModuleType | None:
    """Return the `resource` module; None on Windows, which lacks it."""
    try:
        return importlib.import_module("resource")
    except ImportError:
        return None


def connection_limit(settings: Settings, descriptors: int | None) -> int:
    """Return how many HTTP connections may be open at a time.

    Default: half of the descriptors that are not reserved, from 8 to 1,000; the other half is left
    to the application's handlers. A setting that exceeds the available descriptors is refused.
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
