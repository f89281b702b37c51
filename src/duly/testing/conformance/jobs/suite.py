"""The conformance suites for jobs, fairness, locks and workers."""

from __future__ import annotations

from duly.testing.conformance.jobs.claims import JobClaimCases
from duly.testing.conformance.jobs.completions import EndCases
from duly.testing.conformance.jobs.fair_shares import ShareCases
from duly.testing.conformance.jobs.fairness import SlotCases, TokenCases
from duly.testing.conformance.jobs.inserts import InsertCases
from duly.testing.conformance.jobs.keys import KeyCases
from duly.testing.conformance.jobs.leases import LeaseCases
from duly.testing.conformance.jobs.locks import LockCases
from duly.testing.conformance.jobs.reads import JobReadCases
from duly.testing.conformance.jobs.requests import WishCases
from duly.testing.conformance.jobs.starts import StartCases
from duly.testing.conformance.jobs.sweeps import (
    LeaseEndCases,
    LossCases,
    PromotionCases,
    PruneCases,
)
from duly.testing.conformance.jobs.workers import WorkerCases


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
    """The suite for jobs and workers."""


class FairnessConformance(TokenCases, SlotCases, ShareCases):
    """The suite for tokens and slots."""


class LockConformance(LockCases):
    """The suite for named locks."""
