"""`duly explain`: describe a trigger in words, with its next times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from duly.cli.failures import explain_failures
from duly.cli.output import say
from duly.clock import SystemClock
from duly.errors import InvalidInput
from duly.settings import Settings
from duly.triggers import Explanation, Trigger, parse_trigger

STAND_IN_KEY = "preview"
"""Key used in place of a schedule's key if a trigger has H or a spread."""


@click.command(epilog="Settings: DULY_ZONES=utc refuses every zone but UTC.")
@click.argument("trigger")
@click.option("--tz", help="IANA zone of a cron expression.  [default: UTC]")
@click.option("--gap", help="Lost times: next_valid, shift or skip.  [default: next_valid]")
@click.option("--fold", help="Doubled times: first, second or both.  [default: first]")
@click.option("--seconds", is_flag=True, help="Six fields, seconds first.")
@click.option(
    "-n",
    "count",
    default=5,
    show_default=True,
    type=click.IntRange(0, 10_000),
    help="How many times to show.",
)
@click.option("--after", metavar="TIME", help="ISO-8601 with an offset.  [default: now]")
@click.option("--key", help="Schedule key that decides H and spread.  [default: a stand-in]")
@explain_failures
def explain(trigger: str, count: int, after: str | None, key: str | None, **options: Any) -> None:
    """Explain TRIGGER in words and list its next times.

    TRIGGER is a cron expression, a macro such as @daily, or a JSON object.

    \b
    Examples:
      duly explain "0 9 * * MON" --tz Europe/Berlin -n 10
      duly explain "30 2 * * *" --tz America/New_York --after 2026-03-07T00:00:00Z
      duly explain '{"kind": "weekly", "days": {"mon": "09:00"}, "tz": "Asia/Tokyo"}'
      duly explain '{"kind": "every", "minutes": 90}'
      duly explain '{"kind": "once", "at": "2026-12-24T18:00:00+01:00"}'
      duly explain '{"kind": "once", "at": "2026-12-24T18:00", "tz": "Europe/Berlin"}'

    Times are shown in the trigger's zone and in UTC; those that a clock change moved, doubled or
    removed carry a remark. For invalid input the exit code is 2.
    """
    given = {name: value for name, value in options.items() if value not in (None, False)}
    parsed = _parse(trigger, given)
    since = SystemClock().now() if after is None else _instant(after)
    bound = parsed.bind(key or STAND_IN_KEY, since)
    show(bound.explain(count, since))
    if bound is not parsed and key is None:
        note = "H, spread and a missing start belong to each schedule; shown for a stand-in (--key)"
        say(f"  note: {note}", dim=True)


def show(explanation: Explanation) -> None:
    """Print an explanation, with remarks highlighted on a terminal."""
    say(explanation.heading, bold=True)
    for time in explanation.times:
        say(f"  {time}", fg="yellow" if time.remark else None)
    if explanation.is_over:
        say("  no next time")


def _parse(trigger: str, options: dict[str, Any]) -> Trigger:
    zones = Settings.from_environment().zones
    if trigger.lstrip().startswith("{"):
        if options:
            named = ", ".join(f"--{name}" for name in options)
            raise InvalidInput(f"{named} with a JSON trigger; write it inside the object instead")
        return parse_trigger(trigger, zones=zones)
    return parse_trigger({"kind": "cron", "expression": trigger, **options}, zones=zones)


def _instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        allowed = "ISO-8601 with an offset, such as 2026-03-07T00:00:00Z"
        raise InvalidInput(f"--after: {text!r} is not allowed; allowed: {allowed}")
    return found
