"""Error answers of the HTTP API as JSON: `{error, message}`."""

from __future__ import annotations

from duly.dispatch.contract import Answer
from duly.errors import BackendUnavailable, Conflict, DulyError, InvalidInput, NotFound

MAX_MESSAGE = 1_000


def problem(status: int, error: str, message: str = "", **headers: str) -> Answer:
    """Return an error answer: a code for programs, and an optional sentence for people."""
    body = {"error": error} | ({"message": message[:MAX_MESSAGE]} if message else {})
    return Answer(status, body, {name.replace("_", "-"): text for name, text in headers.items()})


def unauthorized() -> Answer:
    """Return the one answer to all requests of unknown callers."""
    return problem(401, "unauthorized", www_authenticate="Bearer")


def of_error(error: DulyError) -> Answer:
    """Return the answer for an error of Duly."""
    match error:
        case InvalidInput():
            return problem(400, "invalid_schedule", str(error))
        case NotFound():
            return problem(404, "schedule_not_found")
        case Conflict():
            return problem(409, "conflict", str(error))
        case BackendUnavailable():
            # Its message may name hosts and tables.
            return problem(503, "unavailable", "the database did not answer")
        case _:
            return problem(500, "failed")
