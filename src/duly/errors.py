"""Every exception Duly raises on purpose.

DulyError
├── InvalidInput            the caller's words are wrong; the message says what is allowed
│   ├── InvalidInstant      a time without a zone, or outside the years Duly knows
│   └── InvalidTrigger      a time rule that is refused
│       └── UnknownTrigger  a rule of a kind or version this release does not know
├── NotFound                the thing named does not exist
├── Conflict                somebody else changed it first, or the id or key is taken
├── BackendUnavailable      the database cannot answer now; retry later
└── InternalError           the database refused a statement: a bug in Duly, do not retry
"""

from __future__ import annotations


class DulyError(Exception):
    """Root of the tree: catch this to catch everything Duly raises on purpose."""


class InvalidInput(DulyError):
    """The caller's words are wrong."""


class NotFound(DulyError):
    """The thing named does not exist."""


class Conflict(DulyError):
    """Somebody else changed it first, or the id or key is taken."""


class BackendUnavailable(DulyError):
    """The database cannot answer now: the same call may succeed later."""

    def __init__(self, message: str, *, is_unreachable: bool = False) -> None:
        super().__init__(message)
        self.is_unreachable = is_unreachable
        """Nothing answered: trying again later may help."""


class InternalError(DulyError):
    """The database refused a statement that Duly wrote: a bug. Retrying does not help."""


class InvalidInstant(InvalidInput):
    """A time without a zone, or outside the years Duly knows."""


class InvalidTrigger(InvalidInput):
    """A time rule that is refused; says where the mistake is and what is allowed."""

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
        """Two lines that point at the mistake, or None where there is no place to point at."""
        if self.source is None or self.position is None:
            return None
        start = max(self.source.rfind("\n", 0, self.position) + 1, self.position - 100)
        line = self.source[start : start + 200].split("\n", 1)[0]
        return f"{line}\n{' ' * (self.position - start)}{'^' * max(1, len(self.text))}"


class UnknownTrigger(InvalidTrigger):
    """A rule of a kind or version this release does not know: leave it for a node that does."""


def shown(value: object, most: int = 60) -> str:
    """A value as text for a message: never long, and never an error of its own."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):
        # Integers of thousands of digits and very deep lists have no repr.
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= most else f"{text[: most - 3]}..."
