"""Format text and tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Bars inside cells are escaped."""
    lines = [_row(heading), "|" + "---|" * len(heading), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: object) -> str:
    """Return text as inline code."""
    return f"`{text}`"


def words(names: Iterable[object]) -> str:
    """Return names as inline code, separated by commas."""
    return ", ".join(code(name) for name in names)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
