"""Rows of words as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars inside a cell are escaped."""
    lines = [_row(heading), "|" + "---|" * len(heading), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: object) -> str:
    """Text as code."""
    return f"`{text}`"


def words(names: Iterable[object]) -> str:
    """Names as code, by commas."""
    return ", ".join(code(name) for name in names)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
