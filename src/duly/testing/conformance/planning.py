"""The suite of planning: from due rows to jobs, and the ledger that says what became of each."""

from __future__ import annotations

from duly.testing.conformance.plan_ends import PlanEndCases
from duly.testing.conformance.plan_follows import FollowCases
from duly.testing.conformance.plan_ledger import LedgerCases
from duly.testing.conformance.plan_misfires import MisfireCases
from duly.testing.conformance.plan_rows import PlanCases


class PlanningConformance(PlanCases, MisfireCases, PlanEndCases, FollowCases, LedgerCases):
    """Every promise of PlanStore."""
