"""Tests of command output: JSON with stable names, and cells without control sequences."""

import dataclasses
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import click
import msgspec
import pytest
from click.testing import CliRunner

from duly.cli.failures import exit_code, explain_failures
from duly.cli.output import cell, plain, print_fields, print_json, print_table, say, shown
from duly.cli.target import instant
from duly.errors import BackendUnavailable, Conflict, DulyError, InvalidInput, NotFound
from duly.model.jobs import JobState


class Pair(NamedTuple):
    name: str
    at: datetime


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    state: JobState
    pairs: tuple[Pair, ...]
    counts: dict[JobState, int]


class Struct(msgspec.Struct):
    number: int


NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


HOSTILE = "no\n2026-03-02 12:00:00 ERROR forged\r\x1b[2J\x9b31m\u202e\u2028\ud800"


def test_user_text_cannot_control_the_terminal() -> None:
    @click.command()
    @click.option("--how")
    def show(how: str) -> None:
        match how:
            case "table":
                print_table([HOSTILE, "x"], {"error": str, "other": lambda _: "y"}, "none")
            case "fields":
                print_fields({"error": HOSTILE})
            case "json":
                print_json({"error": HOSTILE})
            case "say":
                say(HOSTILE, bold=True)
            case _:
                explain_failures(_raise_hostile)()

    for how, kept_lines in (("table", 3), ("fields", 2), ("json", 3), ("say", 2), ("fail", 2)):
        result = CliRunner().invoke(show, ["--how", how], color=True)
        text = result.output.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[31m", "")
        assert not set(text) & set("\r\x1b\x9b\u202e\u2028"), how
        assert "forged" in text
        assert len(text.splitlines()) == kept_lines, how
    printed = CliRunner().invoke(show, ["--how", "json"]).output
    assert msgspec.json.decode(printed.replace("\\ud800", "")) == {"error": HOSTILE[:-1]}


def _raise_hostile() -> None:
    raise Conflict(HOSTILE)


def test_views_become_json_types() -> None:
    view = View(JobState.DEAD, (Pair("a", NOON),), {JobState.QUEUED: 2})
    assert plain(view) == {
        "state": "dead",
        "pairs": [{"name": "a", "at": "2026-03-02T12:00:00.000Z"}],
        "counts": {"queued": 2},
    }
    assert plain([Struct(1), None, True, 1.5]) == [{"number": 1}, None, True, 1.5]


def test_json_instants_keep_their_offset() -> None:
    berlin = NOON.astimezone(ZoneInfo("Europe/Berlin"))
    assert plain(berlin) == "2026-03-02T13:00:00.000+01:00"
    assert shown(berlin) == "2026-03-02 12:00:00Z"


def test_cells() -> None:
    assert [shown(each) for each in (None, True, False, ("a", "b"), 7)] == [
        *("-", "yes", "no", "a, b", "7")
    ]
    assert cell("dead") == "[red]dead[/red]"
    assert cell(JobState.SUCCEEDED) == "[green]succeeded[/green]"


def test_user_text_is_no_markup_and_is_not_truncated() -> None:
    long = "[bold]" + "x" * 120

    @click.command()
    def command() -> None:
        print_table([long], {"words": lambda row: row}, "none")

    result = CliRunner().invoke(command)
    assert long in result.stdout


def test_an_empty_table_has_a_hint() -> None:
    @click.command()
    def command() -> None:
        print_table([], {"words": lambda row: row}, "make one")

    assert CliRunner().invoke(command).stdout == "make one\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), 1),
        (Conflict("x"), 1),
        (InvalidInput("x"), 2),
        (BackendUnavailable("x"), 3),
    ],
)
def test_exit_codes(error: DulyError, code: int) -> None:
    @click.command()
    @explain_failures
    def command() -> None:
        raise error

    result = CliRunner().invoke(command)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", "error: x\n")
    assert exit_code(error) == code


def test_times_without_an_offset_are_local() -> None:
    assert instant("2026-03-02T13:00", "Europe/Berlin") == NOON
    assert instant("2026-03-02T12:00:00Z", "Europe/Berlin") == NOON
    assert instant("2026-03-02") == datetime(2026, 3, 2, tzinfo=UTC)
    with pytest.raises(InvalidInput, match="ISO-8601"):
        instant("noon")
