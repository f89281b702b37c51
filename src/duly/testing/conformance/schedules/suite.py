"""The conformance suite for schedules: definitions, rows and events, written together."""

from __future__ import annotations

from duly.testing.conformance.schedules.edits import EditCases
from duly.testing.conformance.schedules.quotas import QuotaCases
from duly.testing.conformance.schedules.reconcile import UpkeepCases
from duly.testing.conformance.schedules.searches import SearchCases
from duly.testing.conformance.schedules.writes import WriteCases


class ScheduleConformance(WriteCases, EditCases, QuotaCases, UpkeepCases, SearchCases):
    """The suite for schedules."""
