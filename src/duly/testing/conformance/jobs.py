"""The suite of jobs: their whole way, fairness, locks and workers."""

from __future__ import annotations

from duly.testing.conformance.fair_shares import ShareCases
from duly.testing.conformance.fairness import SlotCases, TokenCases
from duly.testing.conformance.job_claims import JobClaimCases
from duly.testing.conformance.job_ends import EndCases
from duly.testing.conformance.job_inserts import InsertCases
from duly.testing.conformance.job_keys import KeyCases
from duly.testing.conformance.job_leases import LeaseCases
from duly.testing.conformance.job_reads import JobReadCases
from duly.testing.conformance.job_starts import StartCases
from duly.testing.conformance.job_sweeps import (
    LeaseEndCases,
    LossCases,
    PromotionCases,
    PruneCases,
)
from duly.testing.conformance.job_wishes import WishCases
from duly.testing.conformance.locks import LockCases
from duly.testing.conformance.workers import WorkerCases


class JobConformance(
    InsertCases,
    KeyCases,
    JobClaimCases,
    EndCases,
    LeaseCases,
    StartCases,
    WishCases,
    LossCases,
    LeaseEndCases,
    PromotionCases,
    PruneCases,
    JobReadCases,
    WorkerCases,
):
    """Every promise about jobs and those who run them."""


class FairnessConformance(TokenCases, SlotCases, ShareCases):
    """Every promise about tokens and slots."""


class LockConformance(LockCases):
    """Every promise about named locks."""
