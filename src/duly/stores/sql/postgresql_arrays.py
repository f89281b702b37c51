"""PostgreSQL: arrays as PostgreSQL writes them.

Thousands of values as one text cost the driver far less than as a list of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence


def numbers_array(numbers: Sequence[int | None]) -> str:
    """Numbers for a CAST to bigint[] or integer[]."""
    return "{" + ",".join(["NULL" if each is None else str(each) for each in numbers]) + "}"


def texts_array(texts: Sequence[str | None]) -> str:
    """Texts for a CAST to text[]."""
    return "{" + ",".join(["NULL" if each is None else _quoted(each) for each in texts]) + "}"


def _quoted(text: str) -> str:
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
