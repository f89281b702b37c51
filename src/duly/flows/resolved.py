"""The answer of a resolver about a schedule that the application keeps elsewhere.

Nothing is checked here: the dispatch checks it against the flow, so that every mistake gets the
same kind of answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duly.model.principals import Principal
from duly.model.schedules import Policies
from duly.triggers import Trigger

_USUAL = Policies()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """The part of a schedule that is needed to start its action once."""

    action: Any
    """An action of the flow, or its name inside the flow."""
    principal: Principal
    """The principal that the action runs as; without a default, so that it cannot be forgotten."""
    input: Any = None
    trigger: Trigger | str | Mapping[str, Any] | None = None
    """For strict mode and for display; None: unknown."""
    enabled: bool = True
    policies: Policies = _USUAL
