"""Tests of settings: defaults, the environment, and refused values."""

import dataclasses
from typing import Any

import pytest

from duly import InvalidInput, Settings


def test_defaults() -> None:
    assert Settings() == Settings(zones="any")
    assert Settings.from_environment({}) == Settings()


@pytest.mark.parametrize(
    ("value", "zones"), [("any", "any"), ("utc", "utc"), ("UTC", "utc"), ("Any", "any")]
)
def test_zones_from_the_environment(value: str, zones: str) -> None:
    assert Settings.from_environment({"DULY_ZONES": value}).zones == zones


def test_the_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_ZONES", "utc")
    assert Settings.from_environment().zones == "utc"
    monkeypatch.delenv("DULY_ZONES")
    assert Settings.from_environment().zones == "any"


@pytest.mark.parametrize("value", ["", "all", "Europe/Berlin", "utc "])
def test_a_bad_value_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"DULY_ZONES.*allowed: any or utc") as caught:
        Settings.from_environment({"DULY_ZONES": value})
    assert repr(value.lower()) in str(caught.value)


@pytest.mark.parametrize("value", [None, "UTC", 1])
def test_a_bad_argument_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInput, match="DULY_ZONES"):
        Settings(zones=value)


def test_other_variables_are_not_read() -> None:
    assert Settings.from_environment({"ZONES": "utc", "TZ": "Asia/Tokyo"}) == Settings()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().zones = "utc"  # type: ignore[misc]


def test_url_from_the_environment() -> None:
    assert Settings().url is None
    assert Settings.from_environment({"DULY_URL": "sqlite:///x.db"}).url == "sqlite:///x.db"
    assert Settings.from_environment({"DULY_URL": ""}).url is None


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("", ()),
        ("10.1.2.3", ("10.1.2.3",)),
        (" 10.0.0.0/8, fd00::/8 ,", ("10.0.0.0/8", "fd00::/8")),
    ],
)
def test_trusted_proxies_from_the_environment(value: str, found: tuple[str, ...]) -> None:
    assert Settings().trusted_proxies == ("127.0.0.1", "::1")
    made = Settings.from_environment({"DULY_TRUSTED_PROXIES": value})
    assert made.trusted_proxies == found


@pytest.mark.parametrize("value", ["*", "proxy.internal", "10.0.0.5/8", "10.0.0.1:80"])
def test_a_proxy_that_is_no_address_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="DULY_TRUSTED_PROXIES"):
        Settings.from_environment({"DULY_TRUSTED_PROXIES": f"10.1.2.3,{value}"})


def test_limits_of_connections_from_the_environment() -> None:
    made = Settings.from_environment(
        {
            "DULY_MAX_CONNECTIONS": " 200 ",
            "DULY_HEADER_TIMEOUT_S": "2.5",
            "DULY_IDLE_TIMEOUT_S": "65",
            "DULY_BODY_TIMEOUT_S": "",
        }
    )
    assert made == Settings(max_connections=200, header_timeout_s=2.5, idle_timeout_s=65)
    assert (made.body_timeout_s, Settings().max_connections) == (30, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_connections", "0"),
        ("max_connections", "-1"),
        ("max_connections", "1.5"),
        ("max_connections", "many"),
        ("header_timeout_s", "0"),
        ("header_timeout_s", "nan"),
        ("idle_timeout_s", "0"),
        ("idle_timeout_s", "2.5"),
        ("body_timeout_s", "inf"),
        ("body_timeout_s", "5 s"),
    ],
)
def test_a_limit_that_is_out_of_range_is_refused(name: str, value: str) -> None:
    variable = f"DULY_{name.upper()}"
    with pytest.raises(InvalidInput, match=variable) as caught:
        Settings.from_environment({variable: value})
    assert value in str(caught.value)
