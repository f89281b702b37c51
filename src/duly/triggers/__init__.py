"""Triggers: pure time rules.

`cron`, `every`, `weekly` and `once` create them; `next_after(instant)` evaluates them. Evaluation
reads no clock and keeps no state; only the standard library is used.
"""

from duly.triggers.bulk import next_after_many
from duly.triggers.cron import Cron, cron
from duly.triggers.every import Every, every
from duly.triggers.explain import ExplainedTime, Explanation
from duly.triggers.once import LocalOnce, Once, once
from duly.triggers.parse import parse_trigger
from duly.triggers.trigger import Trigger
from duly.triggers.weekly import Weekly, weekly

__all__ = [
    "Cron",
    "Every",
    "ExplainedTime",
    "Explanation",
    "LocalOnce",
    "Once",
    "Trigger",
    "Weekly",
    "cron",
    "every",
    "next_after_many",
    "once",
    "parse_trigger",
    "weekly",
]
