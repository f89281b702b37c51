"""Checks of facts about the whole repository: public names, layers, locks, requirements."""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from tests.tidy.complaints import Complaint

REQUIREMENTS = "tests/requirements.toml"
REQUIREMENT_COUNTS = {"R": 259, "C": 20, "B": 95}
MAX_TOP_LEVEL = 18
"""Entries of src/duly. A newcomer can still read the list."""


def public_names(names: Sequence[str], module: object) -> Iterator[Complaint]:
    path = "src/duly/__init__.py"
    if list(names) != sorted(set(names)):
        yield Complaint(path, 1, f"sort __all__, each name once: {sorted(set(names))}")
    for name in names:
        if not hasattr(module, name):
            yield Complaint(path, 1, f"__all__ lists {name!r}, which is not defined")


def declared_layers(pyproject: dict[str, Any], entries: AbstractSet[str]) -> Iterator[Complaint]:
    """Check that the top level has few entries, and that each folder is in one row of layers."""
    if len(entries) > MAX_TOP_LEVEL:
        message = f"{len(entries)} entries at the top level; at most {MAX_TOP_LEVEL}"
        yield Complaint("src/duly", 1, f"{message}: {', '.join(sorted(entries))}")
    rows = pyproject["tool"]["importlinter"]["contracts"][0]["layers"]
    declared = [name.strip() for row in rows for name in row.split("|")]
    for name in sorted(set(declared)):
        if declared.count(name) > 1 or "." in name or ":" in name:
            yield Complaint("pyproject.toml", 1, f"layer {name}: list each folder in one row")


def locked_dependencies(pyproject: dict[str, Any], requirements: str) -> Iterator[Complaint]:
    listed = {line.strip() for line in requirements.splitlines()}
    for dependency in pyproject["project"]["dependencies"]:
        if dependency not in listed:
            yield Complaint(
                "requirements-dev.in", 1, f"lacks {dependency!r}, a dependency in pyproject.toml"
            )


def expected_numbers(specification: str | None) -> set[str]:
    """Return the numbers in the specification; without a specification, the known ranges."""
    if specification is not None:
        checklist = specification.split("\n## (b)")[0]
        return set(re.findall(r"^(?:- )?(R\d{3}|C\d{2}|B\d{2})\b", checklist, re.MULTILINE))
    return {
        f"{letter}{number:0{3 if letter == 'R' else 2}}"
        for letter, count in REQUIREMENT_COUNTS.items()
        for number in range(1, count + 1)
    }


def requirements(
    text: str, expected: AbstractSet[str], test_exists: Callable[[str], bool]
) -> Iterator[Complaint]:
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        yield Complaint(REQUIREMENTS, 1, f"not TOML, or a number stands twice: {error}")
        return
    for number in sorted(expected - entries.keys()):
        yield Complaint(REQUIREMENTS, 1, f"{number} is missing")
    for number in sorted(entries.keys() - expected):
        yield Complaint(REQUIREMENTS, 1, f"{number} is not a number of the specification")
    for number, entry in entries.items():
        for problem in _entry_problems(entry, test_exists):
            yield Complaint(REQUIREMENTS, _line_of(text, number), f"{number}: {problem}")


def defined_tests(source: str) -> set[str]:
    """Return the test ids of a file without its path: `test_x`, `TestY::test_z`."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = (
                n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            found.update(f"{node.name}::{method.name}" for method in methods)
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


def _entry_problems(entry: object, test_exists: Callable[[str], bool]) -> Iterator[str]:
    if isinstance(entry, list):
        if not entry:
            yield "an empty list; name a test, or use 'later'"
        for test in entry:
            if not isinstance(test, str):
                yield f"{test!r} is not a test id"
            elif not test_exists(test.partition("[")[0]):
                yield f"no such test: {test}"
    elif not isinstance(entry, str):
        yield "expected a list of test ids, 'replaced by …' or 'later'"
    elif entry != "later" and not re.match(r"(?:replaced by|later:) \S", entry):
        yield f"{entry!r}: expected 'replaced by <reason>', 'later' or 'later: <reason>'"
    else:
        named = re.findall(r"[\w/]+\.py(?:::\w+)+", entry)
        yield from (f"no such test: {test}" for test in named if not test_exists(test))


def _line_of(text: str, number: str) -> int:
    before, found, _ = f"\n{text}".partition(f"\n{number} ")
    return before.count("\n") + 1 if found else 1
