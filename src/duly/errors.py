"""Every exception Duly raises on purpose.

DulyError
├── InvalidInput            the caller's words are wrong; the message says what is allowed
│   ├── InvalidInstant      a time without a zone, or outside the years Duly knows
│   └── InvalidTrigger      a time rule that is refused
│       └── UnknownTrigger  a rule of a kind or version this release does not know
├── NotFound                the thing named does not exist
├── Conflict                somebody else changed it first
└── BackendUnavailable      the database did not answer, or not as it must
"""

from __future__ import annotations


class DulyError(Exception):
    """Root of the tree: catch this to catch everything Duly raises on purpose."""


class InvalidInput(DulyError):
    """The caller's words are wrong."""


class NotFound(DulyError):
    """The thing named does not exist."""


class Conflict(DulyError):
    """Somebody else changed it first."""


class BackendUnavailable(DulyError):
    """The database did not answer, or not as it must."""


class InvalidInstant(InvalidInput):
    """A time without a zone, or outside the years Duly knows."""


class InvalidTrigger(InvalidInput):
    """A time rule that is refused; says where the mistake is and what is allowed."""

    def __init__(
        self,
        field: str,
        text: str,
        allowed: str,
        *,
        source: str | None = None,
        position: int | None = None,
    ) -> None:
        self.field = field
        self.text = text
        self.allowed = allowed
        self.source = source
        self.position = position
        super().__init__(self._message())

    def _message(self) -> str:
        where = "" if self.position is None else f" at position {self.position} of {self.source!r}"
        return f"{self.field}: {self.text!r}{where} is not allowed; allowed: {self.allowed}"

    def caret(self) -> str | None:
        """Two lines that point at the mistake, or None where there is no place to point at."""
        if self.source is None or self.position is None:
            return None
        return f"{self.source}\n{' ' * self.position}{'^' * max(1, len(self.text))}"


class UnknownTrigger(InvalidTrigger):
    """A rule of a kind or version this release does not know: leave it for a node that does."""
