"""The conformance suite for hand-over by HTTP: claims of ticks, answers, and fires."""

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
    """The suite for DispatchStore."""
