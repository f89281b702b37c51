"""The exceptions that Duly raises on purpose.

DulyError
├── InvalidInput            an argument is invalid; the message states what is allowed
│   ├── InvalidInstant      a time without a time zone, or outside the supported years
│   └── InvalidTrigger      a trigger is invalid
│       └── UnknownTrigger  a trigger of a kind or version that this release does not know
├── NotFound                the named object does not exist
├── Conflict                another caller changed it first, or the id or key is taken
├── BackendUnavailable      the database is not available; retry later
└── InternalError           the database refused a statement: a bug in Duly, do not retry
"""

from __future__ import annotations


class DulyError(Exception):
    """Root of the hierarchy: catches every exception Duly raises on purpose."""


class InvalidInput(DulyError):
    """An argument is invalid; the message states what is allowed."""


class NotFound(DulyError):
    """The named object does not exist."""


class Conflict(DulyError):
    """Another caller changed it first, or the id or key is taken."""


class BackendUnavailable(DulyError):
    """The database is not available: the same call may succeed later."""

    def __init__(self, message: str, *, is_unreachable: bool = False) -> None:
        super().__init__(message)
        self.is_unreachable = is_unreachable
        """The database did not respond; retrying later may help."""


class InternalError(DulyError):
    """The database refused a statement that Duly wrote: a bug. Retrying does not help."""


class InvalidInstant(InvalidInput):
    """A time without a time zone, or outside the supported years."""


class InvalidTrigger(InvalidInput):
    """An invalid trigger; the message has the position of the mistake and what is allowed."""

    def __init__(
        self,
        field: str,
        text: object,
        allowed: str,
        *,
        source: str | None = None,
        position: int | None = None,
    ) -> None:
        self.field = field
        self.text = text if position is not None and isinstance(text, str) else shown(text)
        self.allowed = allowed
        self.source = source
        self.position = position
        super().__init__(self._message())

    def _message(self) -> str:
        where = ""
        if self.position is not None:
            where = f" at position {self.position} of {shown(self.source, most=300)!r}"
        return f"{self.field}: {self.text!r}{where} is not allowed; allowed: {self.allowed}"

    def caret(self) -> str | None:
        """Return two lines that point at the mistake; None if it has no position."""
        if self.source is None or self.position is None:
            return None
        start = max(self.source.rfind("\n", 0, self.position) + 1, self.position - 100)
        line = self.source[start : start + 200].split("\n", 1)[0]
        return f"{line}\n{' ' * (self.position - start)}{'^' * max(1, len(self.text))}"


class UnknownTrigger(InvalidTrigger):
    """A trigger of a kind or version this release does not know; newer nodes may know it."""


def shown(value: object, most: int = 60) -> str:
    """Return a value as short text for a message; never raises."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):
        # repr() fails for integers of thousands of digits and very deep lists.
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= most else f"{text[: most - 3]}..."
