"""Every operation of the HTTP surface: one table, from which paths are matched and documented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from duly.web.api import shapes

FLOW = "/api/flows/{flow}"
MY = f"{FLOW}/my/schedules"
Security = Literal["gateway", "user", "signature", "none"]

_PROBLEMS: dict[int, str] = {
    400: "The request is wrong; `message` says how.",
    401: "Nobody known asks. Nothing more is said, whatever was asked.",
    403: "`denied`: `authorize` said no, or the secret belongs to one owner.",
    404: "There is no such thing, or it is not the caller's.",
    405: "The path exists, the method does not; see `Allow`.",
    409: "Somebody else changed it first, the name is taken, or there is one too many.",
    413: "The body is too large.",
    500: "The application's own code raised; its log says what.",
    503: "The database did not answer; the same call may be made again.",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter after the `?`."""

    name: str
    schema: Mapping[str, Any]
    about: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    id: str
    method: str
    path: str
    about: str
    security: Security
    answers: Mapping[int, tuple[str, Any]]
    """By status: words, and the type of the body."""
    problems: tuple[int, ...] = ()
    body: Any = None
    is_body_needed: bool = True
    query: tuple[Query, ...] = field(default=())

    @property
    def documented(self) -> dict[int, tuple[str, Any]]:
        """Every answer."""
        found = {status: (_PROBLEMS[status], shapes.Problem) for status in self.problems}
        return dict(sorted((dict(self.answers) | found).items()))


_PAGE = Query(
    "limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "How many at most."
)
_TICKED: dict[int, tuple[str, Any]] = {
    200: ("So much was posted, whatever was answered.", shapes.Ticked),
    204: ("Nothing was due.", None),
}
_VIEW = shapes.ScheduleView
_USER = (400, 401, 404, 405, 503)
_WRITE = (400, 401, 404, 405, 409, 413, 503)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "openapi",
        "GET",
        "/api/openapi.json",
        "This document.",
        "none",
        {200: ("The document.", dict[str, Any])},
        (405,),
    ),
    Operation(
        "dispatch",
        "POST",
        f"{FLOW}/schedules/{{scheduleId+}}/dispatch",
        "Start one action for one schedule.",
        "gateway",
        {
            200: ("It was dispatched before, or another run is in the way.", shapes.NotAgain),
            202: ("The job is made.", shapes.Accepted),
        },
        (400, 401, 403, 404, 405, 413, 500, 503),
        shapes.DispatchBody,
        is_body_needed=False,
    ),
    Operation(
        "listStatic",
        "GET",
        f"{FLOW}/schedules",
        "The schedules that the flow's code declares, and whether others are served.",
        "gateway",
        {200: ("Those, and never other people's.", shapes.FlowSchedules)},
        (401, 403, 404, 405, 503),
    ),
    Operation(
        "tick",
        "POST",
        "/api/tick",
        "Post what is due.",
        "gateway",
        _TICKED,
        (401, 403, 405, 413, 500),
    ),
    Operation(
        "tickByGet",
        "GET",
        "/api/tick",
        "The same, for hosts whose cron can only GET.",
        "gateway",
        _TICKED,
        (401, 403, 405, 413, 500),
    ),
    Operation(
        "webhook",
        "POST",
        f"{FLOW}/webhooks/{{webhook}}",
        "Take a delivery to whom it belongs.",
        "signature",
        {
            200: ("It was taken before.", shapes.Delivered),
            202: ("It is taken; `ignored`: it is nobody's.", shapes.Delivered),
        },
        (400, 401, 405, 409, 413, 500, 503),
        dict[str, Any],
    ),
    Operation(
        "listMine",
        "GET",
        MY,
        "The caller's schedules, by name.",
        "user",
        {200: ("One page.", shapes.SchedulePage)},
        _USER,
        query=(Query("after", {"type": "string"}, "The `next` of the page before."), _PAGE),
    ),
    Operation(
        "create",
        "POST",
        MY,
        "Make a schedule.",
        "user",
        {201: ("It is made.", _VIEW)},
        _WRITE,
        shapes.NewSchedule,
    ),
    Operation(
        "get",
        "GET",
        f"{MY}/{{name}}",
        "One of the caller's schedules.",
        "user",
        {200: ("As it stands.", _VIEW)},
        _USER,
    ),
    Operation(
        "update",
        "PATCH",
        f"{MY}/{{name}}",
        "Change what is named.",
        "user",
        {200: ("As it stands now.", _VIEW)},
        _WRITE,
        shapes.Changes,
    ),
    Operation(
        "delete",
        "DELETE",
        f"{MY}/{{name}}",
        "Remove it; what it started goes on.",
        "user",
        {204: ("It is gone.", None)},
        _WRITE,
    ),
    Operation(
        "pause",
        "POST",
        f"{MY}/{{name}}/pause",
        "Let it rest until it is resumed.",
        "user",
        {200: ("It rests.", _VIEW)},
        _WRITE,
        shapes.Note,
        is_body_needed=False,
    ),
    Operation(
        "resume",
        "POST",
        f"{MY}/{{name}}/resume",
        "Let it go on: its next time is the first after now.",
        "user",
        {200: ("It goes on.", _VIEW)},
        _WRITE,
        shapes.Note,
        is_body_needed=False,
    ),
    Operation(
        "previewMine",
        "GET",
        f"{MY}/{{name}}/preview",
        "Its rule in words, and its next times.",
        "user",
        {200: ("Words and times.", shapes.Preview)},
        _USER,
        query=(
            Query(
                "n",
                {"type": "integer", "minimum": 1, "maximum": 100, "default": 5},
                "How many times.",
            ),
        ),
    ),
    Operation(
        "history",
        "GET",
        f"{MY}/{{name}}/history",
        "What became of its occurrences, newest first.",
        "user",
        {200: ("One page.", shapes.History)},
        _USER,
        query=(
            Query(
                "before",
                {"type": "string", "format": "date-time"},
                "The `next` of the page before.",
            ),
            _PAGE,
        ),
    ),
    Operation(
        "preview",
        "POST",
        f"{FLOW}/my/preview",
        "A rule in words, and its next times, before anything is made.",
        "user",
        {200: ("Words and times.", shapes.Preview)},
        (400, 401, 404, 405, 413, 503),
        shapes.Question,
    ),
)
