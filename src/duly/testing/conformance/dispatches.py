"""The suite of hand-over by HTTP: claims of ticks, their answers, and what endpoints fire."""

from __future__ import annotations

from duly.testing.conformance.dispatch_claims import DispatchClaimCases
from duly.testing.conformance.dispatch_edits import DispatchEditCases
from duly.testing.conformance.dispatch_ends import DispatchEndCases, NotFoundCases
from duly.testing.conformance.dispatch_fires import FireCases
from duly.testing.conformance.dispatch_leases import DispatchLeaseCases
from duly.testing.conformance.dispatch_states import FireStateCases
from duly.testing.conformance.dispatch_turns import FireKeyCases, FireTurnCases


class DispatchConformance(
    DispatchClaimCases,
    DispatchLeaseCases,
    DispatchEditCases,
    DispatchEndCases,
    NotFoundCases,
    FireCases,
    FireStateCases,
    FireKeyCases,
    FireTurnCases,
):
    """Every promise of DispatchStore."""
