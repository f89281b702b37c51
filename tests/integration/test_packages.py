"""Published packages: the sdist holds the whole repository, the wheel only the product."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def repository() -> set[str]:
    """Return the files that git tracks or would add."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so the files of the repository are unknown")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in found.stdout.splitlines() if (ROOT / name).exists()}


def build(kind: str, folder: Path) -> Path:
    """Build one package, as pip would."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (built,) = folder.iterdir()
    return built


def test_source_package_has_everything(tmp_path: Path) -> None:
    """The tests, the benchmarks and `make docs` can be run from it."""
    expected = repository()
    with tarfile.open(build("sdist", tmp_path)) as built:
        names = {name.partition("/")[2] for name in built.getnames()}
    assert names - {"PKG-INFO"} == expected


def test_wheel_has_only_the_product(tmp_path: Path) -> None:
    expected = {name.removeprefix("src/") for name in repository() if name.startswith("src/duly/")}
    with zipfile.ZipFile(build("wheel", tmp_path)) as built:
        names = {name for name in built.namelist() if ".dist-info/" not in name}
    assert names == expected
