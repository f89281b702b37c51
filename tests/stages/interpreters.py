"""Find the supported interpreters of this machine, and make an environment for one.

`python3.11` and its siblings are looked up on PATH and among the versions that pyenv holds, and
must really start: a pyenv shim exists for versions that are not active, and fails.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13")
TRIED = (*SUPPORTED, "3.14")
"""Versions to look for. 3.14 is not supported yet, but is tested where it is installed."""
ROOT = Path(__file__).parent.parent.parent
ASK = "import sys, ensurepip, venv; print('{}.{}'.format(*sys.version_info))"


@dataclass(frozen=True)
class Interpreter:
    """A Python that starts and can make environments."""

    version: str
    program: str


def own_version() -> str:
    """Return the version of the interpreter that runs this."""
    return "{}.{}".format(*sys.version_info)


def find_interpreters(versions: Iterable[str] = TRIED) -> dict[str, Interpreter | None]:
    """Return an interpreter for each version, or None where none starts."""
    return {version: find_interpreter(version) for version in versions}


def find_interpreter(version: str) -> Interpreter | None:
    """Return the first candidate that starts and has the version."""
    for program in candidates(version):
        if version_of(program) == version:
            return Interpreter(version, program)
    return None


def candidates(version: str) -> Iterator[str]:
    """Yield the programs that may have a version."""
    name = f"python{version}"
    for folder in os.get_exec_path():
        found = shutil.which(name, path=folder)
        if found is not None:
            yield found
    pyenv = shutil.which("pyenv")
    if pyenv is not None:
        root = subprocess.run([pyenv, "root"], stdout=subprocess.PIPE, text=True, check=False)
        versions = Path(root.stdout.strip(), "versions")
        yield from map(str, sorted(versions.glob(f"{version}.*/bin/{name}"), reverse=True))


def version_of(program: str) -> str | None:
    """Return the version that a program reports, or None when it does not start."""
    try:
        asked = subprocess.run(
            [program, "-c", ASK],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def environment_of(interpreter: Interpreter, root: Path = ROOT) -> Path:
    """Make or refresh `.venv-<version>` with the locked requirements; return its Python."""
    folder = root / f".venv-{interpreter.version}"
    stamp, python = folder / ".installed", folder / "bin" / "python"
    sources = [root / "requirements-dev.txt", root / "pyproject.toml"]
    if stamp.exists() and all(each.stat().st_mtime <= stamp.stat().st_mtime for each in sources):
        return python
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
    for command in (
        [interpreter.program, "-m", "venv", "--clear", str(folder)],
        [*pip, "--require-hashes", "-r", str(sources[0])],
        [*pip, "--no-deps", "--no-build-isolation", "-e", str(root)],
    ):
        subprocess.run(command, cwd=root, check=True)
    stamp.touch()
    return python
