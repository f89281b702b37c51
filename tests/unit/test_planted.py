"""Tests of planted faults: all are used, and the table counts the ones each target catches."""

import inspect
import pkgutil
from importlib import import_module

from tests import conformance
from tests.conformance.test_broken import BROKEN
from tests.simulation import planted as simulation
from tests.simulation.planted import BUGS
from tests.stages.planted import REPLACED, Fault, before_of, collected_faults, table

from duly.stores import MemoryStore

WALKS = "tests/property/test_plan_walk.py"


def broken_stores() -> set[type[MemoryStore]]:
    """Return the broken stores of the conformance tests, without their base classes."""
    names = [each.name for each in pkgutil.iter_modules(conformance.__path__)]
    modules = [import_module(f"tests.conformance.{name}") for name in names if "broken" in name]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, MemoryStore)
        and value.__module__ == module.__name__
    }
    run = {store for store, *_ in BROKEN}
    bases = {base for each in found | run for base in each.__mro__[1:]}
    return found - bases


def test_every_broken_store_is_run() -> None:
    unused = broken_stores() - {store for store, *_ in BROKEN}
    assert unused == set()
    assert len(broken_stores()) > 100


def test_every_bug_of_the_simulation_is_planted() -> None:
    plants = {
        value
        for _, value in inspect.getmembers(simulation, inspect.isfunction)
        if list(inspect.signature(value).parameters) in (["patch"], ["_patch"])
    }
    assert plants == {plant for plant, _ in BUGS}


def test_marks_are_collected() -> None:
    faults = collected_faults(WALKS)
    assert faults
    assert {(fault.family, fault.is_extended) for fault in faults} == {("walks", False)}
    assert {fault.test for fault in faults} == {f"{WALKS}::test_walk_notices_a_planted_bug"}


def test_a_lost_fault_is_listed() -> None:
    faults = [
        Fault("a.py::test_a[x]", "stores", is_extended=False),
        Fault("a.py::test_a[y]", "stores", is_extended=True),
    ]
    before = before_of(["a.py::test_a[x]", "a.py::test_a[z::1]", "b.py::test_b"], faults)
    lines, lost = table(faults, before)
    assert lost == ["a.py::test_a[z::1]"]
    assert [line.split() for line in lines[1:]] == [
        ["stores", "2", "1", "1", "2", "1"],
        ["all", "2", "1", "1", "2", "1"],
    ]


def test_a_replaced_fault_counts_only_while_its_replacement_is_planted() -> None:
    old, new = next(iter(REPLACED.items()))
    assert table([Fault(new, "stores", is_extended=False)], {old: "stores"})[1] == []
    assert table([], {old: "stores"})[1] == [old]


def test_faults_are_replaced_by_ones_that_exist() -> None:
    named = {store.__name__ for store, *_ in BROKEN}
    for old, new in REPLACED.items():
        assert new.partition("[")[2].rstrip("]") in named, (old, new)
        assert old.partition("[")[2].rstrip("]") not in named, old
