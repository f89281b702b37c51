"""The conformance suite for upkeep: erasure, retention, and new zone rules."""

from __future__ import annotations

from duly.testing.conformance.upkeep.audit import AuditUpkeepCases
from duly.testing.conformance.upkeep.erasure import EraseCases
from duly.testing.conformance.upkeep.finished import FinishedCases
from duly.testing.conformance.upkeep.ledger import LedgerRetentionCases
from duly.testing.conformance.upkeep.schedule_events import EventRetentionCases
from duly.testing.conformance.upkeep.zones import RecomputeCases


class UpkeepConformance(
    EraseCases,
    LedgerRetentionCases,
    EventRetentionCases,
    AuditUpkeepCases,
    FinishedCases,
    RecomputeCases,
):
    """The suite for UpkeepStore."""
