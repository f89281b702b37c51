"""Every backend runs every suite, so a test of the package covers all backends."""

import importlib
import pkgutil
from types import ModuleType, SimpleNamespace

import pytest

from duly.testing import conformance
from duly.testing.conformance import StoreConformance
from tests.conformance import test_memory, test_memory_optimistic, test_postgres, test_sqlite


def classes_with_cases() -> set[type]:
    """Return every class of the package that defines tests."""
    found: set[type] = set()
    for each in pkgutil.walk_packages(conformance.__path__, f"{conformance.__name__}."):
        values = vars(importlib.import_module(each.name)).values()
        found.update(v for v in values if isinstance(v, type) and issubclass(v, StoreConformance))
    return {each for each in found if any(name.startswith("test_") for name in vars(each))}


def classes_run(backend: ModuleType | SimpleNamespace) -> set[type]:
    """Return all base classes of the test classes of a backend."""
    tests = [value for name, value in vars(backend).items() if name.startswith("Test")]
    return {each for test in tests for each in test.__mro__}


@pytest.mark.parametrize(
    "backend", [test_memory, test_memory_optimistic, test_sqlite, test_postgres]
)
def test_every_backend_passes_every_suite(backend: ModuleType) -> None:
    assert classes_with_cases() - classes_run(backend) == set()


@pytest.mark.planted("suites")
def test_a_missing_suite_is_detected() -> None:
    partial = SimpleNamespace(TestIndex=test_memory.TestIndex)
    missing = {each.__name__ for each in classes_with_cases() - classes_run(partial)}
    assert {"DocumentConformance", "ProcessConformance", "WriteCases"} <= missing
    assert "ClaimCases" not in missing
