"""PostgreSQL: array literals.

Thousands of values in one text cost the driver far less than a list of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast


def numbers_array(numbers: Sequence[int | None]) -> str:
    """Return an array literal of numbers for a CAST to bigint[] or integer[]."""
    return "{" + str(list(numbers))[1:-1].replace("None", "NULL") + "}"


def texts_array(texts: Sequence[str | None]) -> str:
    """Return an array literal of texts for a CAST to text[]; quote only if a text needs it."""
    if texts and None not in texts:
        joined = '","'.join(cast(Sequence[str], texts))
        if "\\" not in joined and joined.count('"') == 2 * (len(texts) - 1):
            return f'{{"{joined}"}}'
    return "{" + ",".join(["NULL" if each is None else _quoted(each) for each in texts]) + "}"


def _quoted(text: str) -> str:
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
