"""Log formats of a running application: text or JSON lines on standard error.

JSON lines include the extra fields of a record: a fixed `event`, ids and counts. Texts of
exceptions are scrubbed of what looks like a secret.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import click

from duly.cli.output import iso
from duly.operate.control_characters import continue_lines, escape_json
from duly.operate.redaction.values import MAX_SCANNED, scrub
from duly.triggers.instants import from_ms

F = TypeVar("F", bound=Callable[..., Any])
LEVELS = ("debug", "info", "warning", "error")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {
    *("message", "asctime", "taskName", "color_message")
}
"""Attributes of every record; all others come from `extra`."""
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class TextLines(logging.Formatter):
    """Formatter of time, level and message; continuation lines begin with `  | `.

    Text from an error or a user can therefore neither forge a record nor control the terminal.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        return continue_lines(super().format(record))

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 - the name of logging
        """Return the traceback without secrets."""
        return scrub(super().formatException(ei), limit=MAX_SCANNED)


class JsonLines(TextLines):
    """Formatter of one JSON object per line; fields that are None are omitted."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a JSON line."""
        line: dict[str, Any] = {
            "at": iso(from_ms(int(record.created * 1000))),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        said = {name: value for name, value in vars(record).items() if name not in _OWN}
        line |= {name: value for name, value in said.items() if value is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return escape_json(json.dumps(line, ensure_ascii=False, default=str))


def log_options(command: F) -> F:
    """Add the logging options to a command."""
    for option in (
        click.option(
            "--log-level",
            type=click.Choice(LEVELS),
            default="info",
            show_default=True,
            help="Lowest level that is logged.",
        ),
        click.option(
            "--log",
            "log_form",
            type=click.Choice(("text", "json")),
            default="text",
            show_default=True,
            help="Lines for people or for programs, on standard error.",
        ),
    ):
        command = option(command)
    return command


def begin_logging(log_form: str = "text", log_level: str = "info") -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_form == "json" else TextLines())
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
