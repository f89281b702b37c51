"""The suite of planning: from due rows to jobs, and the ledger that says what became of each."""

from __future__ import annotations

from duly.testing.conformance.ledger_counts import LedgerCountCases
from duly.testing.conformance.ledger_reads import LedgerReadCases
from duly.testing.conformance.plan_at_once import AtOnceCases
from duly.testing.conformance.plan_backfills import BackfillCases
from duly.testing.conformance.plan_bursts import BurstCases
from duly.testing.conformance.plan_ends import PlanEndCases
from duly.testing.conformance.plan_extras import RunNowCases
from duly.testing.conformance.plan_failing import FailingCases
from duly.testing.conformance.plan_follows import FollowCases
from duly.testing.conformance.plan_late import LateCases
from duly.testing.conformance.plan_ledger import LedgerCases
from duly.testing.conformance.plan_marker import MarkerCases
from duly.testing.conformance.plan_misfires import MisfireCases
from duly.testing.conformance.plan_pauses import PauseCases
from duly.testing.conformance.plan_requeued import RequeuedCases
from duly.testing.conformance.plan_retimed import RetimedCases
from duly.testing.conformance.plan_rows import PlanCases
from duly.testing.conformance.plan_runs import RunsCases
from duly.testing.conformance.plan_turns import PlannedTurnCases, PromotedTurnCases
from duly.testing.conformance.plan_withdrawals import WithdrawalCases


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
    """Every promise of PlanStore and LedgerStore."""
