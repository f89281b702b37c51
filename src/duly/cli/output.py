"""Output of commands: tables for people, JSON with stable names for programs."""

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
"""Table width when the output is not a terminal."""
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
    """Return a view as JSON types: names unchanged, instants as ISO-8601."""
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
    """Print one JSON document."""
    click.echo(escape_json(json.dumps(plain(value), ensure_ascii=False, indent=2)))


def iso(at: datetime) -> str:
    """Return an instant as ISO-8601 in its own zone."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(value: object) -> str:
    """Return a value as text for a cell."""
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
    """Return the console for tables."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=WIDE)


def print_table(rows: Sequence[T], columns: Columns[T], empty: str) -> None:
    """Print a table, or the text `empty` if there are no rows."""
    if not rows:
        say(empty)
        return
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:
        table.add_row(*(cell(escape_line(shown(read(row)))) for read in columns.values()))
    console().print(table)


def print_fields(values: Mapping[str, object]) -> None:
    """Print the fields of one object, one per line."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in values.items():
        table.add_row(f"[dim]{escape(name)}[/dim]", cell(value))
    console().print(table)


def cell(value: object) -> str:
    """Return a value in the colour of its state; text is escaped, never parsed as markup."""
    text = escape_controls(shown(value))
    colour = _COLOURS.get(text)
    return escape(text) if colour is None else f"[{colour}]{escape(text)}[/{colour}]"


def say(text: str, *, err: bool = False, **style: Any) -> None:
    """Print a text with its control characters escaped."""
    click.secho(escape_controls(text), err=err, **style)


def heading(text: str) -> None:
    """Print a heading above a table."""
    click.echo()
    say(text, bold=True)
