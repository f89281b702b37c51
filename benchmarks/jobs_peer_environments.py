"""Creates a separate Python or Node environment for each peer under `.bench`, on demand.

Returns the command that starts a peer's script. A failure raises Absent with the reason; reasons
name packages, never a path or an address.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".bench"
INSTALL_SECONDS = 240


class Absent(Exception):
    """A peer cannot be measured here."""


@dataclass(frozen=True, slots=True)
class Program:
    """How to start a peer's script: the command before its arguments, and variables to add."""

    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


def python_program(name: str, script: str, packages: Sequence[str]) -> Program:
    """Return how to run a module of this folder with an interpreter that has these packages."""
    folder = HOME / name
    python = folder / "bin" / "python"
    if not _is_made(folder, packages):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Absent(f"{name}: no virtual environment, {type(error).__name__}") from error
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _install([*pip, "install", *packages], folder, packages)
    return Program((str(python), "-m", f"benchmarks.{script}"))


def own_program(script: str) -> Program:
    """Return how to run a module of this folder with this interpreter."""
    return Program((sys.executable, "-m", f"benchmarks.{script}"))


def node_program(script: str, packages: Sequence[str]) -> Program:
    """Return how to run a script of this folder with Node and these packages."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Absent("node and npm are not installed")
    folder = HOME / "node"
    if not _is_made(folder, packages):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        words = [npm, "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"]
        _install([*words, "--prefix", str(folder), *packages], folder, packages)
    script_file = Path(__file__).with_name(f"{script}.js")
    return Program((node, str(script_file)), {"NODE_PATH": str(folder / "node_modules")})


def _is_made(folder: Path, packages: Sequence[str]) -> bool:
    stamp = folder / ".installed"
    return stamp.exists() and stamp.read_text().split() == list(packages)


def _install(command: list[str], folder: Path, packages: Sequence[str]) -> None:
    wanted = " ".join(packages)
    print(f"benchmark: installing {wanted}", file=sys.stderr)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Absent(f"installing {wanted}: {type(error).__name__}") from error
    if done.returncode:
        raise Absent(f"{wanted} could not be installed (exit status {done.returncode})")
    (folder / ".installed").write_text("\n".join(packages))
