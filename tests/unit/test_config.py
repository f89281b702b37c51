"""Tests of the configuration of an application, which is checked before anything connects."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest

from duly import (
    Config,
    Duly,
    Flow,
    InvalidInput,
    KeeperOptions,
    PlannerOptions,
    Settings,
    WorkerOptions,
)
from duly.app.config import ConfigWords
from duly.dispatch import HttpOptions
from duly.stores.sql.options import SqlOptions
from duly.testing import ManualClock


def test_every_field_is_an_option_of_the_application() -> None:
    database = {each.name for each in fields(SqlOptions)} - {"planning"}
    assert set(ConfigWords.__annotations__) == {each.name for each in fields(Config)} | database


def test_fields_have_no_second_name() -> None:
    own = {each.name for each in fields(Config)}
    assert own.isdisjoint({each.name for each in fields(SqlOptions)})


def test_options_replace_fields_of_the_configuration() -> None:
    given = Config(look_ahead_s=5, database=SqlOptions(connections=3, namespace="crm"))
    app = Duly("sqlite:///never-opened.db", config=given, connections=7, priority_aging_s=60)
    database = SqlOptions(connections=7, namespace="crm")
    assert app.config == Config(look_ahead_s=5, priority_aging_s=60, database=database)
    assert given.database.connections == 3


def test_http_options_default_to_the_standard_ones() -> None:
    assert Duly("memory:", http=None).http == HttpOptions()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"conections": 3}, "Duly() has no option 'conections'; did you mean 'connections'?"),
        ({"planning": 3}, "Duly() has no option 'planning'"),
        ({"connections": 0}, "connections is 0; allowed: 1 to 1000"),
        ({"look_ahead_s": -1}, "look_ahead_s is -1; allowed: 0 s to 1 d"),
        ({"look_ahead_s": float("nan")}, "look_ahead_s is nan"),
        ({"priority_aging_s": "60"}, "priority_aging_s is 60"),
        ({"priority_aging_s": True}, "priority_aging_s is True"),
        ({"worker": True}, "worker is True; pass WorkerOptions(...)"),
        ({"settings": {}}, "settings is {}; pass Settings(...)"),
        ({"authorize": "yes"}, "authorize is yes; pass a function or None"),
        ({"clock": "noon"}, "clock is noon; pass a Clock or None"),
    ],
)
def test_options_are_checked_before_anything_connects(words: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Duly("postgresql://nobody@127.0.0.1:1/none", **words)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PlannerOptions(limit=0), "limit is 0; allowed: 1 to 5000"),
        (lambda: PlannerOptions(period_s=-1), "period_s is -1 s; allowed: 0 s or more"),
        (lambda: PlannerOptions(look_ahead_s=float("nan")), "look_ahead_s is nan s"),
        (lambda: KeeperOptions(silent_worker_s=-5), "silent_worker_s is -5 s"),
    ],
)
def test_options_of_loops_are_checked(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        make()
    assert str(raised.value).startswith(message)


def test_workers_have_the_options_of_the_configuration() -> None:
    options = WorkerOptions(slots=3, queues=("mail",))
    app = Duly("memory:", config=Config(worker=options))
    assert app.worker().options == options
    assert app.worker(WorkerOptions(slots=5)).options.slots == 5


def test_settings_of_the_configuration_replace_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DULY_DISPATCH_SECRETS", "from-the-environment")
    own = Settings(dispatch_secrets=("of-the-configuration",), base_url="https://duly.example.org")
    flow = Flow("mail")
    given, found = Duly("memory:", flows=[flow], settings=own), Duly("memory:")
    assert given.settings is own
    assert found.settings.dispatch_secrets == ("from-the-environment",)
    admit = {"authorization": "Bearer of-the-configuration"}
    assert given.asgi.gatekeeper.admit_bearer(admit) is not None
    assert found.asgi.gatekeeper.admit_bearer(admit) is None
    assert given.tick(given.store).concurrency == 10


def test_the_clock_is_part_of_the_configuration() -> None:
    clock = ManualClock(datetime(2026, 1, 5, tzinfo=UTC))
    assert Duly("memory:", config=Config(clock=clock)).clock is clock


def test_typed_options_are_those_of_the_signature() -> None:
    parameters = inspect.signature(Duly).parameters
    assert list(parameters) == ["url", "flows", "config", "options"]
