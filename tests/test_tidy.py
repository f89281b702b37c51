"""Run the style checks over the repository, and each of them on a bad sample."""

import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

import duly
from tests.tidy import facts, prose, source
from tests.tidy.complaints import Complaint, File

ROOT = Path(__file__).parent.parent
# The only file that may contain what the checks forbid.
SAMPLES = PurePosixPath("tests/test_tidy.py")
PRODUCT = "src"
PYTHON = ("src", "tests", "tools", "benchmarks", "examples")

FileCheck = Callable[[File], Iterator[Complaint]]

SOURCE_CHECKS: list[FileCheck] = [
    source.constructor_width,
    source.clock_reads,
    source.environment_reads,
    source.prints,
    source.module_docstring,
    source.empty_names,
    source.root_imports,
]
PYTHON_CHECKS: list[FileCheck] = [
    source.file_length,
    source.line_length,
    source.function_length,
    source.silent_handlers,
    source.bucket_names,
]
TEST_CHECKS: list[FileCheck] = [source.literal_sleeps, source.skips_without_reason]
TEXT_CHECKS: list[FileCheck] = [
    prose.leftovers,
    prose.machine_paths,
    prose.registry_addresses,
]


@cache
def tracked() -> tuple[str, ...]:
    """Return all files that are tracked or could be added: everything but ignored files."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return tuple(sorted(set(listing.stdout.split("\0")) - {""}))


@cache
def repository() -> tuple[File, ...]:
    """Return the text files among them."""
    files = []
    for name in tracked():
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b"\0"
        if b"\0" not in content:
            files.append(File(PurePosixPath(name), content.decode()))
    return tuple(files)


def python_files(*folders: str) -> list[File]:
    return [
        file
        for file in repository()
        if file.path.suffix == ".py" and any(file.is_under(folder) for folder in folders)
    ]


def documents() -> list[File]:
    return [file for file in repository() if file.path.suffix == ".md"]


def assert_tidy(complaints: Iterable[Complaint]) -> None:
    found = [str(complaint) for complaint in complaints]
    assert not found, "\n" + "\n".join(found)


def by_name(check: object) -> str:
    return getattr(check, "__name__", repr(check))


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=by_name)
def test_source(check: FileCheck) -> None:
    files = python_files(PRODUCT)
    assert files
    assert_tidy(complaint for file in files for complaint in check(file))


@pytest.mark.parametrize("check", PYTHON_CHECKS, ids=by_name)
def test_python(check: FileCheck) -> None:
    assert_tidy(complaint for file in python_files(*PYTHON) for complaint in check(file))


@pytest.mark.parametrize("check", TEST_CHECKS, ids=by_name)
def test_tests(check: FileCheck) -> None:
    assert_tidy(complaint for file in python_files("tests") for complaint in check(file))


@pytest.mark.parametrize("check", TEXT_CHECKS, ids=by_name)
def test_text(check: FileCheck) -> None:
    # The rules contain the patterns that they look for.
    rules = {SAMPLES, PurePosixPath("tests/tidy/prose.py")}
    files = [file for file in repository() if file.path not in rules]
    assert_tidy(complaint for file in files for complaint in check(file))


def test_decisions() -> None:
    decisions = [file for file in documents() if file.is_under("docs/adr")]
    assert_tidy(complaint for file in decisions for complaint in prose.decision_names(file))
    assert_tidy(prose.decision_numbers([file.path.name for file in decisions]))


def test_links() -> None:
    texts = {file.path: file.text for file in documents()}
    names = {name for name in tracked() if (ROOT / name).is_file()}
    assert_tidy(c for file in documents() for c in prose.links(file, texts, names))


def test_make_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert_tidy(c for file in documents() for c in prose.make_targets(file, makefile))


def test_public_names() -> None:
    assert_tidy(facts.public_names(duly.__all__, duly))


def test_declared_layers() -> None:
    entries = {path.name for path in (ROOT / "src/duly").iterdir() if path.name != "__pycache__"}
    assert_tidy(facts.declared_layers(pyproject(), entries))


def test_locked_dependencies() -> None:
    requirements = (ROOT / "requirements-dev.in").read_text()
    assert_tidy(facts.locked_dependencies(pyproject(), requirements))


def test_requirements() -> None:
    specification = ROOT.parent / "shared" / "spec" / "requirements.md"
    expected = facts.expected_numbers(specification.read_text() if specification.exists() else None)
    text = (ROOT / facts.REQUIREMENTS).read_text()
    assert_tidy(facts.requirements(text, expected, is_defined))


def test_ranges_count_every_requirement() -> None:
    numbers = facts.expected_numbers(None)
    assert len(numbers) == 374
    assert {"R001", "R259", "C01", "C20", "B01", "B95"} <= numbers


def test_numbers_are_read_from_a_specification() -> None:
    text = "R001. one\n- C01. two\n- B95 (**ran**). three, see B12\n## (b) more\n- B01. no\n"
    assert facts.expected_numbers(text) == {"R001", "C01", "B95"}


def test_tests_are_found_in_source() -> None:
    code = "def test_a(): ...\ndef b(): ...\nclass TestC:\n    async def test_d(self): ...\n"
    assert facts.defined_tests(code) == {"test_a", "TestC::test_d"}


def pyproject() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def defined_in(path: str) -> set[str]:
    file = ROOT / path
    return facts.defined_tests(file.read_text()) if file.is_file() else set()


def is_defined(test_id: str) -> bool:
    path, _, name = test_id.partition("::")
    return name in defined_in(path)


# Bad samples for each file check: the path to pretend, and the text. A check without a sample
# fails test_every_check_has_a_bad_sample.
BAD_FILES: list[tuple[FileCheck, str, str]] = [
    (source.file_length, "src/duly/a.py", "x = 1\n" * 501),
    (source.line_length, "src/duly/a.py", "x = 1  # " + "y" * 92),
    (source.function_length, "src/duly/a.py", "def f():\n" + "    x = 1\n" * 70),
    (
        source.constructor_width,
        "src/duly/a.py",
        "class A:\n    def __init__(self, a, b, c, *, d, e, f, g): ...\n",
    ),
    (source.clock_reads, "src/duly/a.py", "from datetime import datetime as d\nd.now()"),
    (source.clock_reads, "src/duly/a.py", "import datetime as dt\nf = dt.datetime.utcnow"),
    (source.clock_reads, "src/duly/a.py", "import time\ntime.time()"),
    (source.clock_reads, "src/duly/a.py", "from time import time_ns\ntime_ns()"),
    (source.environment_reads, "src/duly/a.py", "import os\nos.environ['A']"),
    (source.environment_reads, "src/duly/a.py", "from os import getenv\ngetenv('A')"),
    (source.prints, "src/duly/a.py", "print('x')"),
    (source.silent_handlers, "src/duly/a.py", "try:\n    f()\nexcept Exception:\n    pass\n"),
    (source.silent_handlers, "src/duly/a.py", "try:\n    f()\nexcept:\n    ...\n"),
    (
        source.silent_handlers,
        "src/duly/a.py",
        "from contextlib import suppress\nwith suppress(Exception):\n    f()\n",
    ),
    (source.module_docstring, "src/duly/a.py", "x = 1"),
    (source.module_docstring, "src/duly/a.py", '"""' + "line\n" * 9 + '"""'),
    (source.bucket_names, "src/duly/utils.py", ""),
    (source.bucket_names, "tests/helpers/a.py", ""),
    (source.empty_names, "src/duly/a.py", "class JobManager: ..."),
    (source.empty_names, "src/duly/a.py", "def process_rows(): ..."),
    (source.empty_names, "src/duly/a.py", "def f(data): ..."),
    (source.empty_names, "src/duly/a.py", "plan_v2 = 1"),
    (source.root_imports, "src/duly/a.py", "from duly import cron"),
    (source.root_imports, "src/duly/a.py", "import duly"),
    (source.literal_sleeps, "tests/test_a.py", "import time\ntime.sleep(0.1)"),
    (
        source.literal_sleeps,
        "tests/test_a.py",
        "from asyncio import sleep\nasync def f():\n    await sleep(60 * 2)\n",
    ),
    (source.skips_without_reason, "tests/test_a.py", "import pytest\npytest.skip()"),
    (source.skips_without_reason, "tests/test_a.py", "import pytest\npytest.skip('')"),
    (
        source.skips_without_reason,
        "tests/test_a.py",
        "import pytest\n@pytest.mark.skip\ndef test_a(): ...\n",
    ),
    (
        source.skips_without_reason,
        "tests/test_a.py",
        "import pytest\n@pytest.mark.skipif(True)\ndef test_a(): ...\n",
    ),
    (prose.leftovers, "README.md", "TODO: finish"),
    (prose.leftovers, "src/duly/a.py", "x = 1  # FIXME"),
    (prose.machine_paths, "README.md", "see /Users/me/duly/README.md"),
    (prose.machine_paths, "Makefile", "PYTHON = '/home/me/python'"),
    (prose.registry_addresses, "requirements-dev.txt", "--index-url https://example.org"),
    (prose.registry_addresses, "requirements-dev.txt", "--find-links wheels"),
    (prose.registry_addresses, "README.md", "https://pypi.org/project/duly"),
    (prose.decision_names, "docs/adr/1-x.md", "# 1 x"),
    (prose.decision_names, "docs/adr/0001-records.md", "# 0001 Records"),
    (prose.decision_names, "docs/adr/0002-take-click.md", "# 0001 Take click"),
]
GOOD_FILES: list[tuple[FileCheck, str, str]] = [
    (source.clock_reads, source.CLOCK_HOME, "import time\ntime.time()"),
    (source.clock_reads, "src/duly/a.py", "def f(clock, time):\n    return clock.now(), time"),
    (source.environment_reads, source.SETTINGS_HOME, "import os\nos.environ"),
    (source.prints, "src/duly/cli/demo/demo.py", "print('x')"),
    (source.silent_handlers, "src/duly/a.py", "try:\n    f()\nexcept KeyError:\n    pass\n"),
    (source.silent_handlers, "src/duly/a.py", "try:\n    f()\nexcept Exception:\n    raise\n"),
    (source.empty_names, "src/duly/a.py", "def tzdata_version(metadata, subprocess): ..."),
    (source.root_imports, "src/duly/a.py", "from duly.errors import DulyError"),
    (source.root_imports, "src/duly/cli/demo/demo.py", "from duly import cron"),
    (source.literal_sleeps, "tests/test_a.py", "import asyncio\nasyncio.sleep(0)"),
    (source.literal_sleeps, "tests/test_a.py", "import time\ntime.sleep(delay)"),
    (source.skips_without_reason, "tests/test_a.py", "import pytest\npytest.skip('no server')"),
    (
        source.skips_without_reason,
        "tests/test_a.py",
        "import pytest\n@pytest.mark.skipif(True, reason='no server')\ndef test_a(): ...\n",
    ),
    (prose.machine_paths, "README.md", "see https://example.org/home/page"),
    (prose.registry_addresses, "Makefile", "uv pip compile --no-emit-index-url"),
    (prose.decision_names, "docs/adr/0001-record-decisions.md", "# 0001 Record decisions\n"),
]


@pytest.mark.planted("tidy")
@pytest.mark.parametrize(
    ("check", "path", "text"), BAD_FILES, ids=[by_name(c) for c, *_ in BAD_FILES]
)
def test_bad_files_are_refused(check: FileCheck, path: str, text: str) -> None:
    complaints = list(check(File(PurePosixPath(path), text)))
    assert complaints
    assert str(complaints[0]).startswith(f"{path}:")


@pytest.mark.parametrize(
    ("check", "path", "text"), GOOD_FILES, ids=[by_name(c) for c, *_ in GOOD_FILES]
)
def test_good_files_pass(check: FileCheck, path: str, text: str) -> None:
    assert_tidy(check(File(PurePosixPath(path), text)))


def test_every_check_has_a_bad_sample() -> None:
    running = {*SOURCE_CHECKS, *PYTHON_CHECKS, *TEST_CHECKS, *TEXT_CHECKS, prose.decision_names}
    assert running == {check for check, _, _ in BAD_FILES}


def test_every_check_runs() -> None:
    """Each public function of the rules modules is a check in one of the lists above."""
    own = {
        value
        for module in (source, prose)
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
        if not name.startswith("_")
    }
    whole = {prose.decision_numbers, prose.links, prose.make_targets}
    assert own == {check for check, _, _ in BAD_FILES} | whole


@pytest.mark.planted("tidy")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a](gone.md)", "no such file"),
        ("[a](../gone.md)", "no such file"),
        ("[a](README.md#gone)", "no such heading"),
        ("[a](#gone)", "no such heading"),
        ("[a](README.md#the-words) [b](adr) [c](../Makefile) [d](https://example.org)", None),
        ("`[a](gone.md)`\n```\n[a](gone.md)\n```\n", None),
    ],
)
def test_link_samples(text: str, complaint: str | None) -> None:
    file = File(PurePosixPath("docs/a.md"), text)
    texts = {file.path: text, PurePosixPath("docs/README.md"): "# Docs\n\n## The *words*\n"}
    names = {"docs/a.md", "docs/README.md", "docs/adr/0001-record-decisions.md", "Makefile"}
    found = [str(c) for c in prose.links(file, texts, names)]
    assert len(found) == (complaint is not None), found
    assert complaint is None or complaint in found[0]


@pytest.mark.planted("tidy")
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("run `make demoo`", 1),
        ("```console\n$ make check tets\n```\n", 1),
        ("```\nmake nothing\n```\n", 1),
        ("make sure that `make demo ARGS=--now` and `make` work", 0),
    ],
)
def test_make_target_samples(text: str, count: int) -> None:
    makefile = "demo: setup ## Show\ncheck:\n\ttrue\n"
    file = File(PurePosixPath("README.md"), text)
    assert len(list(prose.make_targets(file, makefile))) == count


@pytest.mark.planted("tidy")
def test_decision_numbers_have_no_holes() -> None:
    assert_tidy(prose.decision_numbers(["0001-a-b.md", "0002-a-b.md"]))
    assert list(prose.decision_numbers(["0001-a-b.md", "0003-a-b.md"]))
    assert list(prose.decision_numbers(["0001-a-b.md", "0001-c-d.md"]))


@pytest.mark.planted("tidy")
@pytest.mark.parametrize("names", [["b", "a"], ["a", "a"], ["a", "gone"]])
def test_bad_public_names_are_refused(names: list[str]) -> None:
    assert list(facts.public_names(names, SimpleNamespace(a=1, b=2)))


@pytest.mark.planted("tidy")
@pytest.mark.parametrize(
    ("rows", "entries", "count"),
    [
        (["jobs", "triggers"], 18, 0),
        (["jobs", "triggers"], 19, 1),
        (["jobs", "rules | jobs"], 1, 1),
        (["stores.port", "triggers"], 1, 1),
    ],
)
def test_layer_samples(rows: list[str], entries: int, count: int) -> None:
    sample = {"tool": {"importlinter": {"contracts": [{"layers": rows}]}}}
    names = {str(number) for number in range(entries)}
    assert len(list(facts.declared_layers(sample, names))) == count


@pytest.mark.planted("tidy")
def test_dependency_missing_from_the_lock_is_refused() -> None:
    sample = {"project": {"dependencies": ["click>=8.1"]}}
    assert list(facts.locked_dependencies(sample, "click>=8.0\n"))
    assert_tidy(facts.locked_dependencies(sample, "rich\nclick>=8.1\n"))


@pytest.mark.planted("tidy")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "C01 is missing"),
        ('C01 = "later"\nC02 = "later"', "C02 is not a number"),
        ('C01 = "later"\nC01 = "later"', "stands twice"),
        ("C01 = []", "an empty list"),
        ("C01 = 3", "expected a list"),
        ("C01 = [3]", "not a test id"),
        ('C01 = "soon"', "expected 'replaced by"),
        ('C01 = "replaced by "', "expected 'replaced by"),
        ('# x\nC01 = ["tests/test_tidy.py::test_gone"]', "toml:2: C01: no such test"),
        ('C01 = ["tests/gone.py::test_links"]', "no such test"),
        ('C01 = "replaced by x: tests/test_tidy.py::test_gone, y"', "py::test_gone"),
    ],
)
def test_bad_requirements_are_refused(text: str, complaint: str) -> None:
    found = [str(c) for c in facts.requirements(text, {"C01"}, is_defined)]
    assert any(complaint in line for line in found), found


@pytest.mark.parametrize(
    "entry",
    [
        '"later"',
        '"later: needs a store"',
        '"replaced by one ledger"',
        '"later: a store; the rest is tests/test_tidy.py::test_links."',
        '["tests/test_tidy.py::test_links", "tests/test_tidy.py::test_text[leftovers]"]',
    ],
)
def test_good_requirements_pass(entry: str) -> None:
    assert_tidy(facts.requirements(f"C01 = {entry}", {"C01"}, is_defined))
