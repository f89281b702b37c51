"""What is published: the source package is the whole repository, the wheel the product alone."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def repository() -> set[str]:
    """The files that are, or are about to be, in the repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout: git cannot say what belongs to the repository")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in found.stdout.splitlines() if (ROOT / name).exists()}


def build(kind: str, folder: Path) -> Path:
    """Build one package, as an installer would."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (built,) = folder.iterdir()
    return built


def test_source_package_has_everything(tmp_path: Path) -> None:
    """So that whoever unpacks it can run the tests, the benchmarks and `make docs`."""
    expected = repository()
    with tarfile.open(build("sdist", tmp_path)) as built:
        names = {name.partition("/")[2] for name in built.getnames()}
    assert names - {"PKG-INFO"} == expected


def test_wheel_has_the_product_alone(tmp_path: Path) -> None:
    expected = {name.removeprefix("src/") for name in repository() if name.startswith("src/duly/")}
    with zipfile.ZipFile(build("wheel", tmp_path)) as built:
        names = {name for name in built.namelist() if ".dist-info/" not in name}
    assert names == expected
