"""The suite of schedules: definitions, their rows and their events, written together."""

from __future__ import annotations

from duly.testing.conformance.edits import EditCases
from duly.testing.conformance.quotas import QuotaCases
from duly.testing.conformance.searches import SearchCases
from duly.testing.conformance.upkeep import UpkeepCases
from duly.testing.conformance.writes import WriteCases


class ScheduleConformance(WriteCases, EditCases, QuotaCases, UpkeepCases, SearchCases):
    """Every promise about schedules."""
