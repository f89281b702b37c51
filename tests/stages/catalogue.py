"""List the stages of `make test-all` and the commands of each.

A stage runs tests that are marked `extended`, a program, or the usual tests on another
interpreter. Tests without that mark run in `make test` and are not repeated here on the same
interpreter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.stages.interpreters import Interpreter

ROOT = Path(__file__).parent.parent.parent
MARKER = "extended"
BENCHMARKS = tuple(
    str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/unit/test_benchmarks_*.py"))
)
MARKED = {
    "pgbouncer": ("conformance through PgBouncer", ("tests/conformance/test_pgbouncer.py",)),
    "nested-loops": (
        "conformance with forced nested loops",
        ("tests/conformance/test_nestedloops.py",),
    ),
    "faults": ("make test-faults with few jobs", ("tests/system/faults",)),
    # Playwright keeps an event loop running: no other test may share its process.
    "browsers": ("the dashboard in Chromium", ("tests/browser",)),
    "benchmarks": ("a quick run of every benchmark; figures are not judged", BENCHMARKS),
}
"""Stages of marked tests: what they are about, and their paths. `extended` runs all others."""
OTHER_INTERPRETER_PATHS = (
    "tests/unit",
    "tests/property",
    "tests/conformance/test_memory.py",
    "tests/conformance/test_sqlite.py",
)
DEEP_PATHS = ("tests/property", "tests/integration/test_index_model.py")
DEPTH = 4
SIMULATION_SEEDS = 600


@dataclass(frozen=True)
class Command:
    """A command line for a Python interpreter."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_pytest(self) -> bool:
        """Return whether pytest counts the checks; any other command is one check."""
        return self.arguments[:2] == ("-m", "pytest")


@dataclass(frozen=True)
class Stage:
    """A named part of `make test-all` that can also run alone."""

    name: str
    about: str
    commands: tuple[Command, ...]
    limit_s: float = 900.0
    """A command that runs longer is killed and counted as failed."""
    interpreter: Interpreter | None = None
    """The interpreter that gets an environment of its own; None: the one that runs this."""


def pytest_command(*arguments: str, **environment: str) -> Command:
    """Return a quiet pytest run."""
    return Command(("-m", "pytest", "-q", *arguments), environment)


def marked(*arguments: str) -> Command:
    """Return a run of marked tests, on both processors."""
    return pytest_command("-n", "2", "--dist", "worksteal", "-m", MARKER, *arguments)


def marked_stages() -> list[Stage]:
    """Return the stages of marked tests; together they run each of them once."""
    paths = [path for _, each in MARKED.values() for path in each]
    others = marked(*(f"--ignore={path}" for path in paths))
    return [
        *(Stage(name, about, (marked(*each),)) for name, (about, each) in MARKED.items()),
        Stage("extended", "all other tests marked extended", (others,)),
    ]


def program_stages() -> list[Stage]:
    """Return the stages that search longer than a test of `make test` does."""
    deep = pytest_command("-n", "2", "--timeout=900", *DEEP_PATHS, DULY_TEST_DEPTH=str(DEPTH))
    return [
        Stage("properties", f"property tests with {DEPTH} times the examples", (deep,)),
        Stage(
            "simulation",
            f"{SIMULATION_SEEDS} simulated runs (make sim)",
            (Command(("-m", "tests.simulation", "--seeds", str(SIMULATION_SEEDS))),),
        ),
        Stage(
            "dispatch",
            "make test-dispatch with fewer schedules",
            (Command(("-m", "tests.system.fleet", "--schedules", "1000")),),
        ),
        Stage("soak", "make soak for seconds", (Command(("-m", "tests.system.soak", "--quick")),)),
    ]


def all_stages(others: Iterable[Interpreter]) -> list[Stage]:
    """Return every stage, with one for each other interpreter."""
    usual = ("-n", "2", "--dist", "worksteal", "-m", f"not {MARKER}")
    versions = [
        Stage(
            f"python{other.version}",
            f"unit, property and SQLite tests on Python {other.version}",
            (pytest_command(*usual, *OTHER_INTERPRETER_PATHS),),
            interpreter=other,
        )
        for other in others
    ]
    return [*marked_stages(), *program_stages(), *versions]
