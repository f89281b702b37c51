"""The suite of hand-over by HTTP: claims of ticks, their answers, and what endpoints fire."""

from __future__ import annotations

from duly.testing.conformance.dispatch.answers import DispatchEndCases, NotFoundCases
from duly.testing.conformance.dispatch.claims import DispatchClaimCases
from duly.testing.conformance.dispatch.edits import DispatchEditCases
from duly.testing.conformance.dispatch.fires import FireCases
from duly.testing.conformance.dispatch.leases import DispatchLeaseCases
from duly.testing.conformance.dispatch.overlap import FireKeyCases, FireTurnCases
from duly.testing.conformance.dispatch.states import FireStateCases


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
