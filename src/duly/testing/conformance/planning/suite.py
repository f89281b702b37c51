"""The conformance suite for planning: from due rows to jobs and their ledger."""

from __future__ import annotations

from duly.testing.conformance.planning.at_once import AtOnceCases
from duly.testing.conformance.planning.backfills import BackfillCases
from duly.testing.conformance.planning.bursts import BurstCases
from duly.testing.conformance.planning.due_rows import PlanCases
from duly.testing.conformance.planning.failing import FailingCases
from duly.testing.conformance.planning.last_times import PlanEndCases
from duly.testing.conformance.planning.late import LateCases
from duly.testing.conformance.planning.ledger import LedgerCases
from duly.testing.conformance.planning.ledger_counts import LedgerCountCases
from duly.testing.conformance.planning.ledger_follows import FollowCases
from duly.testing.conformance.planning.ledger_reads import LedgerReadCases
from duly.testing.conformance.planning.marker import MarkerCases
from duly.testing.conformance.planning.misfires import MisfireCases
from duly.testing.conformance.planning.overlap import PlannedTurnCases, PromotedTurnCases
from duly.testing.conformance.planning.pauses import PauseCases
from duly.testing.conformance.planning.requeued import RequeuedCases
from duly.testing.conformance.planning.retimed import RetimedCases
from duly.testing.conformance.planning.run_limits import RunsCases
from duly.testing.conformance.planning.run_now import RunNowCases
from duly.testing.conformance.planning.withdrawals import WithdrawalCases


class PlanningConformance(
    PlanCases,
    BurstCases,
    MisfireCases,
    PlanEndCases,
    FollowCases,
    LedgerCases,
    LedgerCountCases,
    LedgerReadCases,
    PlannedTurnCases,
    PromotedTurnCases,
    MarkerCases,
    LateCases,
    AtOnceCases,
    PauseCases,
    WithdrawalCases,
    RequeuedCases,
    RetimedCases,
    RunNowCases,
    BackfillCases,
    FailingCases,
    RunsCases,
):
    """The suite for PlanStore and LedgerStore."""
