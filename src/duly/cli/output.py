"""How commands print: tables for people, JSON with stable names for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from duly.operate.control_characters import escape_controls, escape_json, escape_line

T = TypeVar("T")
Columns = Mapping[str, Callable[[T], object]]

WIDE = 240
"""Columns of a table that no terminal cuts: it goes to a file or another command."""
_COLOURS = {
    "active": "green",
    "succeeded": "green",
    "ok": "green",
    "alive": "green",
    "processing": "cyan",
    "fired": "cyan",
    "will_fire": "cyan",
    "paused": "yellow",
    "retrying": "yellow",
    "skipped": "yellow",
    "missed": "yellow",
    "late": "yellow",
    "warning": "yellow",
    "silent": "yellow",
    "dead": "red",
    "failed": "red",
    "bad": "red",
    "denied": "red",
    "quarantined": "red",
}


def plain(value: object) -> Any:
    """A view as JSON types: names as they are, instants as ISO-8601."""
    match value:
        case datetime():
            return iso(value)
        case Enum():
            return value.value
        case msgspec.Struct():
            return plain(msgspec.to_builtins(value))
        case Mapping():
            return {str(name): plain(inner) for name, inner in value.items()}
        case str() | int() | float() | None:
            return value
        case _ if dataclasses.is_dataclass(value):
            found = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            return plain(found)
        case tuple() if hasattr(value, "_asdict"):
            return plain(value._asdict())
        case Iterable():
            return [plain(each) for each in value]
        case _:
            return str(value)


def print_json(value: object) -> None:
    """One JSON document."""
    click.echo(escape_json(json.dumps(plain(value), ensure_ascii=False, indent=2)))


def iso(at: datetime) -> str:
    """An instant for programs, on the wall it came with."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(value: object) -> str:
    """A value in a cell."""
    match value:
        case None:
            return "-"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case bool():
            return "yes" if value else "no"
        case Enum():
            return str(value.value)
        case tuple() | list():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def console() -> Console:
    """Where tables go."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=WIDE)


def print_table(rows: Sequence[T], columns: Columns[T], empty: str) -> None:
    """A row for each; where there is none, what to do next."""
    if not rows:
        say(empty)
        return
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:
        table.add_row(*(cell(escape_line(shown(read(row)))) for read in columns.values()))
    console().print(table)


def print_fields(values: Mapping[str, object]) -> None:
    """One thing, a line for each of its facts."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in values.items():
        table.add_row(f"[dim]{escape(name)}[/dim]", cell(value))
    console().print(table)


def cell(value: object) -> str:
    """A value with the colour of its state; what people wrote is never read as markup."""
    text = escape_controls(shown(value))
    colour = _COLOURS.get(text)
    return escape(text) if colour is None else f"[{colour}]{escape(text)}[/{colour}]"


def say(text: str, *, err: bool = False, **style: Any) -> None:
    """Print a text whose parts people wrote; its control characters are shown, not sent."""
    click.secho(escape_controls(text), err=err, **style)


def heading(text: str) -> None:
    """A line above a table."""
    click.echo()
    say(text, bold=True)
