"""The suite of upkeep: owners who leave, history that ages, zone rules that change."""

from __future__ import annotations

from duly.testing.conformance.upkeep_audit import AuditUpkeepCases
from duly.testing.conformance.upkeep_erase import EraseCases
from duly.testing.conformance.upkeep_events import EventRetentionCases
from duly.testing.conformance.upkeep_finished import FinishedCases
from duly.testing.conformance.upkeep_ledger import LedgerRetentionCases
from duly.testing.conformance.upkeep_zones import RecomputeCases


class UpkeepConformance(
    EraseCases,
    LedgerRetentionCases,
    EventRetentionCases,
    AuditUpkeepCases,
    FinishedCases,
    RecomputeCases,
):
    """Every promise of UpkeepStore."""
