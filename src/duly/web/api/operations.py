"""Table of all operations of the HTTP surface, used for routing and for OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from duly.web.api import shapes

FLOW = "/api/flows/{flow}"
OWN_SCHEDULES = f"{FLOW}/my/schedules"
Security = Literal["gateway", "user", "signature", "none"]

_PROBLEMS: dict[int, str] = {
    400: "The request is invalid; `message` has the reason.",
    401: "The caller is not authenticated. The answer is the same for every request.",
    403: "`denied`: `authorize` refused, or the secret belongs to one owner.",
    404: "It does not exist, or it is not the caller's.",
    405: "The path exists, the method does not; see `Allow`.",
    409: "It was changed meanwhile, the name is taken, or a limit is reached.",
    413: "The body is too large.",
    500: "The application's own code raised; see its log.",
    503: "The database did not answer; the call can be repeated.",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter."""

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
    """By status: description, and the type of the body."""
    problems: tuple[int, ...] = ()
    body: Any = None
    is_body_needed: bool = True
    query: tuple[Query, ...] = field(default=())

    @property
    def documented(self) -> dict[int, tuple[str, Any]]:
        """All answers by status, problems included."""
        found = {status: (_PROBLEMS[status], shapes.Problem) for status in self.problems}
        return dict(sorted((dict(self.answers) | found).items()))


_PAGE = Query(
    "limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "How many at most."
)
_TICKED: dict[int, tuple[str, Any]] = {
    200: ("Counts of the posts, whatever was answered.", shapes.Ticked),
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
            200: ("It was dispatched before, or another run is in progress.", shapes.NotAgain),
            202: ("The job is created.", shapes.Accepted),
        },
        (400, 401, 403, 404, 405, 413, 500, 503),
        shapes.DispatchBody,
        is_body_needed=False,
    ),
    Operation(
        "listStatic",
        "GET",
        f"{FLOW}/schedules",
        "List the schedules that the flow's code declares, and whether it has dynamic ones.",
        "gateway",
        {200: ("Declared schedules; never dynamic ones.", shapes.FlowSchedules)},
        (401, 403, 404, 405, 503),
    ),
    Operation(
        "tick",
        "POST",
        "/api/tick",
        "Post due occurrences.",
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
        "Deliver a webhook to its owner.",
        "signature",
        {
            200: ("It was delivered before.", shapes.Delivered),
            202: ("It is accepted; `ignored`: it has no owner.", shapes.Delivered),
        },
        (400, 401, 405, 409, 413, 500, 503),
        dict[str, Any],
    ),
    Operation(
        "listMine",
        "GET",
        OWN_SCHEDULES,
        "List the caller's schedules by name.",
        "user",
        {200: ("One page.", shapes.SchedulePage)},
        _USER,
        query=(Query("after", {"type": "string"}, "The `next` of the previous page."), _PAGE),
    ),
    Operation(
        "create",
        "POST",
        OWN_SCHEDULES,
        "Create a schedule.",
        "user",
        {201: ("The new schedule.", _VIEW)},
        _WRITE,
        shapes.NewSchedule,
    ),
    Operation(
        "get",
        "GET",
        f"{OWN_SCHEDULES}/{{name}}",
        "Return one of the caller's schedules.",
        "user",
        {200: ("The schedule.", _VIEW)},
        _USER,
    ),
    Operation(
        "update",
        "PATCH",
        f"{OWN_SCHEDULES}/{{name}}",
        "Change the given fields.",
        "user",
        {200: ("The changed schedule.", _VIEW)},
        _WRITE,
        shapes.Changes,
    ),
    Operation(
        "delete",
        "DELETE",
        f"{OWN_SCHEDULES}/{{name}}",
        "Delete a schedule; running jobs continue.",
        "user",
        {204: ("It is deleted.", None)},
        _WRITE,
    ),
    Operation(
        "pause",
        "POST",
        f"{OWN_SCHEDULES}/{{name}}/pause",
        "Pause a schedule until it is resumed.",
        "user",
        {200: ("The paused schedule.", _VIEW)},
        _WRITE,
        shapes.Note,
        is_body_needed=False,
    ),
    Operation(
        "resume",
        "POST",
        f"{OWN_SCHEDULES}/{{name}}/resume",
        "Resume a schedule: its next time is the first after now.",
        "user",
        {200: ("The resumed schedule.", _VIEW)},
        _WRITE,
        shapes.Note,
        is_body_needed=False,
    ),
    Operation(
        "previewMine",
        "GET",
        f"{OWN_SCHEDULES}/{{name}}/preview",
        "Return its rule in words, and its next times.",
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
        f"{OWN_SCHEDULES}/{{name}}/history",
        "List its occurrences with their outcomes, newest first.",
        "user",
        {200: ("One page.", shapes.History)},
        _USER,
        query=(
            Query(
                "before",
                {"type": "string", "format": "date-time"},
                "The `next` of the previous page.",
            ),
            _PAGE,
        ),
    ),
    Operation(
        "preview",
        "POST",
        f"{FLOW}/my/preview",
        "Return a rule in words, and its next times, without storing anything.",
        "user",
        {200: ("Words and times.", shapes.Preview)},
        (400, 401, 404, 405, 413, 503),
        shapes.Question,
    ),
)
