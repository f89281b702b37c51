"""The dispatcher: answers a dispatch request by making a job or refusing it.

Runs the checks of the contract in their documented order: caller, id, flow, body, duplicate,
schedule, enabled, valid, allowed; then one atomic step of the store makes the job or refuses it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from duly.clock import Clock, SystemClock
from duly.dispatch import contract
from duly.dispatch.auth.secrets import Admission, Gatekeeper
from duly.dispatch.contract import Answer, Asked, DispatchRequest, Refusal, refusal
from duly.dispatch.declared import static_of, static_target
from duly.dispatch.firing import Firing, fire
from duly.dispatch.ids import DispatchId, unstored_id
from duly.dispatch.options import HttpOptions
from duly.dispatch.resolver import ResolveContext, Resolved, call, config_of, find_stored
from duly.dispatch.validation import Checked, as_schedule, validated
from duly.errors import BackendUnavailable, InvalidInput
from duly.flows.flow import Flow
from duly.flows.resolved import ScheduleConfig
from duly.model.ledger import OccurrenceState
from duly.model.principals import Principal
from duly.model.schedules import Schedule, ScheduleId
from duly.model.scopes import SYSTEM
from duly.operate.redaction.raised import traceback_of
from duly.operate.redaction.values import secret_values
from duly.stores.port import Store
from duly.triggers.instants import from_ms, to_ms

log = logging.getLogger(__name__)

Ready = Callable[[], Awaitable[Store]]
Authorize = Callable[..., Any]
"""authorize(principal, schedule) returns whether the schedule may run now."""
_FREE = frozenset({OccurrenceState.WITHDRAWN, OccurrenceState.QUARANTINED})


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A request that passed the checks of caller, id, flow and body."""

    flow: Flow
    target: DispatchId
    asked: Asked
    admission: Admission


class Dispatcher:
    """The handler of dispatch requests."""

    def __init__(
        self,
        flows: Mapping[str, Flow],
        options: HttpOptions,
        gatekeeper: Gatekeeper,
        *,
        authorize: Authorize | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._flows = flows
        self._options = options
        self._gatekeeper = gatekeeper
        self._authorize = authorize
        self._clock = SystemClock() if clock is None else clock

    async def answer(self, ready: Ready, request: DispatchRequest) -> Answer:
        """Return the answer to one request; `ready` opens the store if it is needed."""
        try:
            dispatch = self._read(request)
            return await self._dispatched(await ready(), dispatch)
        except Refusal as refused:
            return refused.answer
        except BackendUnavailable as error:
            log.warning("dispatch: %s", error, extra={"event": "dispatch.unavailable"})
            return refusal(503, "dispatch_failed", "the database did not answer").answer

    def _read(self, request: DispatchRequest) -> Dispatch:
        now_s = to_ms(self._clock.now()) // 1000
        admission = self._gatekeeper.admit(request.headers, request.body, now_s)
        if admission is None:
            raise contract.unauthorized()
        sent = contract.read_target(request.schedule_id)
        flow = self._flows.get(request.flow)
        if flow is None:
            raise refusal(404, "flow_not_found")
        asked = contract.read_body(request.body, request.flow, sent)
        target = static_target(flow, sent)
        if admission.message_id is not None and not asked.is_aimed:
            # A signature covers only the body: a body without flow and id would fit any URL.
            raise contract.unauthorized()
        return Dispatch(flow, target, asked, admission)

    async def _dispatched(self, store: Store, dispatch: Dispatch) -> Answer:
        flow, target, asked = dispatch.flow, dispatch.target, dispatch.asked
        # The id of a static schedule is not parsed by the application.
        parse_id = self._options.parse_id if static_of(flow, target) is None else None
        by = dispatch.admission.principal
        stored = await find_stored(store, flow.name, target, parse_id, by)
        identity = unstored_id(flow.name, target) if stored is None else stored.id
        is_claimed = await self._is_claimed(store, identity, dispatch)
        resolved = await self._resolved(dispatch, stored, identity)
        if not resolved.config.enabled:
            raise refusal(404, "schedule_not_found")
        checked = validated(flow, resolved)
        if self._options.strict:
            within_ms = int(self._options.strict_within_s * 1000)
            strict = contract.Strictness(await store.now_ms(), within_ms, is_claimed)
            contract.check_strictly(asked.nominal_ms, checked.trigger, strict)
        await self._authorised(resolved, checked)
        firing = Firing(dispatch.target, asked, resolved, checked, _key(dispatch, identity))
        return await fire(store, firing)

    async def _is_claimed(self, store: Store, identity: ScheduleId, dispatch: Dispatch) -> bool:
        """Return whether a tick has claimed this occurrence; refuse one that was dispatched."""
        nominal_ms = dispatch.asked.nominal_ms
        if nominal_ms is None:
            return False
        rows = await store.list_occurrences(identity, before_ms=nominal_ms + 1, limit=1)
        if not rows or not rows[0].covers(nominal_ms) or rows[0].state in _FREE:
            return False
        if rows[0].state is not OccurrenceState.DISPATCHING:
            raise Refusal(contract.duplicate(dispatch.target))
        return True

    async def _resolved(
        self, dispatch: Dispatch, stored: Schedule | None, identity: ScheduleId
    ) -> Resolved:
        flow, target = dispatch.flow, dispatch.target
        by = dispatch.admission.principal
        static = static_of(flow, target)
        if static is not None:
            if by is not None and not by.is_system:
                raise refusal(404, "schedule_not_found")
            config = static if stored is None else config_of(stored)
            return Resolved(flow.name, identity, SYSTEM, target.name, "static", config, stored)
        context = ResolveContext(
            flow=flow.name,
            target=target,
            gateway_principal=by,
            nominal_at=_instant(dispatch.asked.nominal_ms),
            found=stored,
        )
        config_found = await _asked(flow, context)
        if config_found is None:
            raise refusal(404, "schedule_not_found")
        principal = config_found.principal
        given: object = principal
        if not isinstance(given, Principal):
            raise refusal(400, "invalid_schedule", "principal must be a Principal")
        if not context.may_run_as(principal):
            message = (
                f"the id does not name {principal.scope}; if the resolver has checked that the "
                "schedule belongs to it, call ctx.vouch(principal)"
            )
            raise refusal(400, "invalid_schedule", message)
        if by is not None and by.scope != principal.scope:
            raise refusal(404, "schedule_not_found")
        name = target.name if stored is None else stored.name
        return Resolved(flow.name, identity, principal.scope, name, "dynamic", config_found, stored)

    async def _authorised(self, resolved: Resolved, checked: Checked) -> None:
        if self._authorize is None:
            return
        principal = resolved.config.principal
        schedule = resolved.schedule or as_schedule(resolved, checked.trigger)
        try:
            allowed = await call(self._authorize, principal, schedule)
        except Exception as error:  # noqa: BLE001 - the application's own
            given = json.dumps(resolved.config.input, default=str)
            told = traceback_of(error, secret_values(given, checked.action.redact))
            log.error("authorize raised: %s", told, extra={"event": "dispatch.authorize_failed"})
            raise refusal(500, "dispatch_failed", "authorize raised; see the log") from None
        if not allowed:
            raise refusal(403, "denied")


def _key(dispatch: Dispatch, identity: ScheduleId) -> str | None:
    said, message_id = dispatch.asked.key, dispatch.admission.message_id
    if said is not None:
        return contract.stored_key(identity, "key", said)
    if message_id is None or dispatch.asked.nominal_ms is not None:
        return None  # The request or the occurrence identifies itself.
    return contract.stored_key(identity, "message", message_id)


async def _asked(flow: Flow, context: ResolveContext) -> ScheduleConfig | None:
    """Return the answer of the flow's own resolver, or else of the reference resolver."""
    if flow.resolver is None:
        return context.stored
    try:
        answer = await call(flow.resolver, context.target.text, context)
    except InvalidInput as error:
        # Most likely a trigger or a principal that could not be constructed.
        raise refusal(400, "invalid_schedule", str(error)) from None
    except Exception as error:  # noqa: BLE001 - the application's own
        about = {"event": "dispatch.resolver"}
        log.error("resolver of %s raised: %s", flow.name, traceback_of(error), extra=about)
        raise refusal(500, "resolver_failed", "the resolver raised; see the log") from None
    if answer is not None and not isinstance(answer, ScheduleConfig):
        about = {"event": "dispatch.resolver"}
        log.error("resolver of %s returned %r", flow.name, type(answer).__name__, extra=about)
        raise refusal(500, "resolver_failed", "the resolver did not return a ScheduleConfig")
    return answer


def _instant(ms: int | None) -> Any:
    return None if ms is None else from_ms(ms)
