"""Control characters in texts that people read on a terminal.

Error texts, names and notes come from handlers and users. A newline in one must not look like a
new log line, and an escape sequence must not reach the terminal that shows it. Pure.
"""

from __future__ import annotations

import re

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""C0, C1, direction marks, line separators and lone surrogates, except newline and tab."""
_IN_LINES = re.compile(f"[{_UNSAFE}]")
_IN_ONE_LINE = re.compile(f"[{_UNSAFE}\t\n]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
CONTINUED = "\n  | "
"""Prefix of every continuation line, so that none can be mistaken for a line of its own."""


def escape_controls(text: str) -> str:
    """Return a text with control characters escaped as `\\x1b`; newlines and tabs stay."""
    return _IN_LINES.sub(_escaped, text.replace("\r\n", "\n"))


def escape_line(text: str) -> str:
    """Return a text as one line, with newlines and tabs escaped too."""
    return _IN_ONE_LINE.sub(_escaped, text)


def continue_lines(text: str) -> str:
    """Return a text whose further lines are marked as continuations of the first."""
    return escape_controls(text).replace("\n", CONTINUED)


def first_line(text: str | None) -> str:
    """Return the first non-empty line of a text, with ` …` if more lines follow."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return "" if not lines else lines[0] + (" …" if len(lines) > 1 else "")


def escape_json(encoded: str) -> str:
    """Return the same JSON without characters that JSON allows and terminals act on."""
    # The JSON encoder has already escaped characters below U+0020.
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _NAMED.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
