"""What a resolver says of a schedule that the application keeps elsewhere.

Nothing is checked here: the dispatch checks the whole of it against the flow, so that what is wrong
with it is one answer, whoever wrote it.
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
    """One schedule, as far as it takes to start its action once."""

    action: Any
    """An action of the flow, or its name inside the flow."""
    principal: Principal
    """Who the action runs as. It has no default: a resolver that forgets it names nobody."""
    input: Any = None
    trigger: Trigger | str | Mapping[str, Any] | None = None
    """Where it is known, for the strict mode and for display."""
    enabled: bool = True
    policies: Policies = _USUAL
