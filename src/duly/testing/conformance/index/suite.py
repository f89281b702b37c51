"""The suite of the index: what upsert(), claim_due() and remove() promise.

It calls no other method, so that an index of an application's own can pass it.
"""

from __future__ import annotations

from duly.testing.conformance.index.claim_ids import ClaimIdCases
from duly.testing.conformance.index.claims import ClaimCases
from duly.testing.conformance.index.quarantine import QuarantineCases
from duly.testing.conformance.index.rows import RowCases
from duly.testing.conformance.index.zones import ZoneCases


class IndexConformance(ClaimCases, ClaimIdCases, QuarantineCases, RowCases, ZoneCases):
    """Every promise of ScheduleIndex; `open_store` may open anything that has its three methods."""
