"""Install the Debian packages that extended tests need, if running as root with apt-get."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping

from tests.mariadb import find_server
from tests.pgbouncer import find_pooler
from tests.system.faults.scenarios import find_faketime

PACKAGES: Mapping[str, Callable[[], object]] = {
    "pgbouncer": find_pooler,
    "faketime": find_faketime,
    "mariadb-server": find_server,
    "chromium": lambda: shutil.which("chromium"),
    "prometheus": lambda: shutil.which("promtool"),
    "systemd": lambda: shutil.which("systemd-analyze"),
}
"""By package, a function that finds the tool that tests use."""
INSTALL = ("apt-get", "install", "-y", "-qq", "--no-install-recommends")


def missing_packages() -> list[str]:
    """Return the packages whose tool is not found."""
    return [name for name, find in PACKAGES.items() if not find()]


def install_packages() -> None:
    """Install the missing packages, and print those that could not be installed."""
    if not (names := missing_packages()):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"test-all: not installed: {', '.join(names)}; the tests that need them are skipped")
        return
    print(f"test-all: installing {', '.join(names)}", flush=True)
    if not _apt(*INSTALL, *names):
        # The package lists may be missing or old, as in a fresh container.
        _apt("apt-get", "update", "-qq")
        _apt(*INSTALL, *names)
    if left := missing_packages():
        print(f"test-all: could not be installed: {', '.join(left)}", flush=True)


def _apt(*command: str) -> bool:
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print("\n".join(done.stdout.splitlines()[-5:]), flush=True)
    return done.returncode == 0
