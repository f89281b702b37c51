"""Form for creating and changing a schedule: first the rule, with a preview, then the action.

The rule is validated before anything is stored. The input of a schedule is never shown again: an
empty field leaves it unchanged.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec

from duly.errors import InvalidInput
from duly.flows.collections.schedules import ScopedSchedules
from duly.model.json_bounds import check_json_text
from duly.model.scopes import Scope
from duly.operate.schedule_views import ScheduleView
from duly.triggers import Explanation, parse_trigger
from duly.triggers.core import Wall
from duly.triggers.trigger import Trigger
from duly.web.dashboard.pages.page import Done, Page, PageAction, PageRequest
from duly.web.dashboard.pages.schedules import by, key_of

PREVIEW = 8
_EXAMPLES = (
    ("0 9 * * MON-FRI", "weekdays at nine"),
    ("0 */6 * * *", "every six hours"),
    ("0 8 L * *", "the last day of the month"),
    ('{"kind": "every", "minutes": 30}', "every half hour"),
    ('{"kind": "once", "at": "2027-01-01T09:00"}', "a single time, in the zone of the field"),
    ('{"kind": "weekly", "days": {"mon": "09:00", "thu": ["09:00", "17:30"]}}', "a weekly plan"),
)


async def new_schedule(page_request: PageRequest) -> Page:
    """Show the form for a new schedule."""
    values = _preview(page_request, page_request.word("rule"), page_request.word("zone") or "UTC")
    actions = sorted(each.name for flow in page_request.app.flows for each in flow.actions.values())
    values |= {"seen": None, "actions": actions, "here": "/schedules/new", "key": {}}
    return Page("schedule_form.html", "New schedule", "schedules", values, is_live=False)


async def edit_schedule(page_request: PageRequest) -> Page:
    """Show the form for changing a schedule."""
    key = key_of(page_request)
    seen = await page_request.admin.schedules.get(key)
    rule, zone = words_of(seen)
    values = _preview(
        page_request, page_request.word("rule") or rule, page_request.word("zone") or zone
    )
    fields = {"flow": key.flow, "scope": key.scope, "name": key.name}
    values |= {"seen": seen, "actions": [], "here": "/schedules/edit", "key": fields}
    return Page("schedule_form.html", f"Change {seen.name}", "schedules", values, is_live=False)


def words_of(seen: ScheduleView) -> tuple[str, str]:
    """Return a stored rule as form fields: a cron expression or JSON, and a zone."""
    stored = seen.trigger
    plain = {"kind", "expression", "tz", "v"}
    if stored.get("kind") == "cron" and not set(stored) - plain:
        return str(stored["expression"]), str(stored.get("tz", "UTC"))
    return msgspec.json.encode(stored).decode(), seen.zone


def trigger_from(rule: str, zone: str) -> Trigger:
    """Return the rule of the form; the zone field applies if the rule itself names none."""
    return parse_trigger(rule, wall=Wall(zone))


def _preview(page_request: PageRequest, rule: str | None, zone: str) -> dict[str, Any]:
    shown: Explanation | None = None
    fault: str | None = None
    if rule is not None:
        try:
            trigger = trigger_from(rule, zone)
            name = page_request.word("name") or "new"
            bound = trigger if trigger.is_bound else trigger.bind(name, page_request.now)
            shown = bound.explain(PREVIEW, page_request.now)
        except InvalidInput as error:
            fault = str(error)
    return {
        "rule": rule or "",
        "zone": zone,
        "shown": shown,
        "fault": fault,
        "examples": _EXAMPLES,
    }


def _json(page_request: PageRequest) -> Any:
    text = page_request.word("input")
    if text is None:
        return None
    check_json_text("input", text)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the input is not JSON: {error}") from None


def _page_of(page_request: PageRequest) -> str:
    key = key_of(page_request)
    return "/schedule?" + urlencode({"flow": key.flow, "scope": key.scope, "name": key.name})


def _mine(page_request: PageRequest) -> tuple[ScopedSchedules, str]:
    """Return the schedules of the owner named in a form, and the schedule's name."""
    key = key_of(page_request)
    known = next((each for each in page_request.app.flows if each.name == key.flow), None)
    actions = None if known is None else frozenset(known.actions)
    collection = page_request.admin.monitoring.collection(key.flow, actions)
    return collection.of(Scope.parse(key.scope), by=by(page_request)), key.name


async def _create(page_request: PageRequest) -> Done:
    mine, name = _mine(page_request)
    await mine.create(
        name,
        trigger_from(page_request.need("rule"), page_request.word("zone") or "UTC"),
        action=page_request.need("action").rpartition(".")[2],
        input=_json(page_request),
        description=page_request.word("description") or "",
    )
    return Done(f"{name} is created.", _page_of(page_request))


async def _edit(page_request: PageRequest) -> Done:
    mine, name = _mine(page_request)
    changes: dict[str, Any] = {"description": page_request.word("description") or ""}
    rule, zone = page_request.word("rule"), page_request.word("zone")
    if rule is not None:
        # Without a zone the update keeps the one that is stored.
        changes["trigger"] = rule if zone is None else trigger_from(rule, zone)
    if page_request.word("input") is not None:
        changes["input"] = _json(page_request)
    await mine.update(name, version=page_request.whole("version"), **changes)
    return Done(f"{name} is changed.", _page_of(page_request))


ACTIONS = {
    "/schedules/create": PageAction("schedule.create", _create, "schedule:{flow}/{scope}/{name}"),
    "/schedules/change": PageAction("schedule.change", _edit, "schedule:{id}"),
}
