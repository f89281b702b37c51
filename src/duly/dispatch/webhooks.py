"""Webhook deliveries: a delivery becomes jobs of the owners of its documents.

A delivery is verified over the raw body, the documents with its value are found by one query of a
sparse index, and the action is started as each document's owner. The delivery's id, taken from what
was signed, is the idempotency key, so that a repeated delivery starts nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from duly.clock import Clock
from duly.dispatch.auth.signing import ID
from duly.dispatch.contract import Answer, Refusal, refusal, unauthorized
from duly.dispatch.dispatcher import Ready
from duly.dispatch.resolver import call
from duly.engine.ids import new_ids
from duly.errors import BackendUnavailable, InvalidInput
from duly.flows.collections.resource import indexed_text
from duly.flows.flow import Action, Flow
from duly.flows.job_options import encode
from duly.flows.webhook_routes import BodyPath, Routed, UnsignedHeader, Webhook
from duly.model.documents import Document
from duly.model.jobs import MAX_TEXT, JobId, NewJob
from duly.model.json_bounds import check_json_text
from duly.model.principals import principal_of
from duly.model.stored_jobs import Enqueued
from duly.operate.redaction.raised import traceback_of
from duly.operate.redaction.values import secret_values
from duly.stores.port import Store
from duly.triggers.instants import to_ms

log = logging.getLogger(__name__)

MAX_FAN_OUT = 1_000
"""Most documents that one delivery may reach."""


@dataclass(frozen=True, slots=True)
class DeliveryRequest:
    """A delivery as received."""

    flow: Flow
    webhook: Webhook
    headers: Mapping[str, str]
    """Headers with names in lower case."""
    body: bytes


async def deliver(ready: Ready, request: DeliveryRequest, clock: Clock) -> Answer:
    """Verify a delivery, store its jobs and return the answer."""
    try:
        webhook = request.webhook
        if not webhook.verify(request.headers, request.body, to_ms(clock.now()) // 1000):
            raise unauthorized()
        body = _read(request.body)
        delivery = _delivery_id(request, body)
        value = await _value(webhook, body)
        if value is None:
            return Answer(202, {"status": "ignored", "requestIds": []})
        store = await ready()
        found = await _owners(store, webhook, value)
        jobs = [await _job(request, body, delivery, each) for each in found]
        return await _enqueued(store, jobs)
    except Refusal as refused:
        return refused.answer
    except BackendUnavailable as error:
        log.warning("webhook: %s", error, extra={"event": "webhook.unavailable"})
        return Answer(503, {"error": "dispatch_failed", "message": "the database did not answer"})


def _read(body: bytes) -> Any:
    try:
        check_json_text("the body", body)
        return msgspec.json.decode(body)
    except InvalidInput as error:
        raise refusal(400, "invalid_body", str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise refusal(400, "invalid_body", "the body must be JSON") from None


def _delivery_id(request: DeliveryRequest, body: Any) -> str:
    """Return the id of a delivery, by default only from signed parts; refuse a missing id."""
    webhook = request.webhook
    named = webhook.delivery_id
    if named is None:
        named = ID if ID in webhook.signed_headers else None
    if named is None:
        return _signed_digest(request)
    if isinstance(named, BodyPath):
        found = named(body)
        if type(found) not in (str, int) or found == "":
            message = f"{named} in the body must be the delivery's id, a text or a whole number"
            raise refusal(400, "invalid_body", message)
        return str(found)
    header = named.name if isinstance(named, UnsignedHeader) else named
    given = request.headers.get(header, "")
    if not given:
        raise refusal(400, "invalid_body", f"header {header} must be the delivery's id")
    return given


def _signed_digest(request: DeliveryRequest) -> str:
    """Return a digest of everything that the signature covers, so that no part can be replaced."""
    digest = sha256()
    for name in request.webhook.signed_headers:
        given = request.headers.get(name, "").encode("utf-8", "surrogatepass")
        digest.update(len(given).to_bytes(8, "big") + given)
    digest.update(request.body)
    return digest.hexdigest()


async def _value(webhook: Webhook, body: Any) -> str | None:
    """Return the value to look up, as the index stores it; None: the body has none."""
    route = webhook.route
    try:
        return indexed_text(route.attribute, await call(route.value, body))
    except (LookupError, TypeError, AttributeError, InvalidInput):
        return None  # Senders send other events to the same address; those have no owner.


async def _owners(store: Store, webhook: Webhook, value: str) -> list[Document]:
    route = webhook.route
    limit = MAX_FAN_OUT if webhook.fan_out else 2
    found = await store.find_documents(route.collection, route.attribute, value, limit)
    if len(found) > 1 and not webhook.fan_out:
        log.error(
            "webhook %s: %s of %s is not unique",
            webhook.name,
            route.attribute,
            route.collection,
            extra={"event": "webhook.ambiguous"},
        )
        message = f"more than one of {route.collection} has this {route.attribute}"
        raise refusal(409, "ambiguous", message)
    return found


async def _job(request: DeliveryRequest, body: Any, delivery: str, found: Document) -> NewJob:
    action: Action = request.flow.actions[request.webhook.action]
    given = body
    if request.webhook.input is not None:
        routed = Routed(body, found.name, msgspec.json.decode(found.body))
        try:
            given = await call(request.webhook.input, routed)
        except Exception as error:  # noqa: BLE001 - the application's own
            secrets = secret_values(request.body.decode(errors="replace"), action.redact)
            told = traceback_of(error, secrets)
            log.error("input of %s raised: %s", action.name, told, extra={"event": "webhook.input"})
            raise refusal(500, "dispatch_failed", "the input function raised") from None
    principal, options = principal_of(found.scope), action.options.run
    try:
        return NewJob(
            id=JobId("job_"),
            action=action.name,
            input=encode(action, action.name, given),
            queue=options.queue,
            workspace=principal.workspace,
            scope=found.scope,
            retry=options.retry,
            timeout_ms=options.timeout_ms,
            delivery=options.delivery,
            key=_key(request.webhook, delivery, found),
        )
    except InvalidInput as error:
        raise refusal(400, "invalid_body", str(error)) from None


def _key(webhook: Webhook, delivery: str, found: Document) -> str:
    """Return the key of one document's job, since two of one owner may get the same delivery."""
    key = f"webhook:{webhook.name}:{found.id}:{delivery}"
    if len(key) <= MAX_TEXT and key.isprintable():
        return key
    return f"webhook:{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


async def _enqueued(store: Store, jobs: list[NewJob]) -> Answer:
    if not jobs:
        return Answer(202, {"status": "ignored", "requestIds": []})
    ids = new_ids("job_", len(jobs))
    named = [
        msgspec.structs.replace(job, id=JobId(job_id))
        for job, job_id in zip(jobs, ids, strict=True)
    ]
    answers = await store.insert_jobs(named)
    # A key taken with another body is a delivery repeated wrongly: the first one counts.
    made = [each for each in answers if isinstance(each, Enqueued) and each.created]
    ids_found = [each.job_id for each in answers]
    status, word = (202, "accepted") if made else (200, "duplicate")
    return Answer(status, {"status": word, "requestIds": ids_found})
