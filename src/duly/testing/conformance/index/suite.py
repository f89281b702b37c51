"""The conformance suite for the index: upsert(), claim_due() and remove().

It calls no other method, so that an application's own index can pass it.
"""

from __future__ import annotations

from duly.testing.conformance.index.claim_ids import ClaimIdCases
from duly.testing.conformance.index.claims import ClaimCases
from duly.testing.conformance.index.quarantine import QuarantineCases
from duly.testing.conformance.index.rows import RowCases
from duly.testing.conformance.index.zones import ZoneCases


class IndexConformance(ClaimCases, ClaimIdCases, QuarantineCases, RowCases, ZoneCases):
    """The suite for ScheduleIndex; `open_store` may return any object with its three methods."""
