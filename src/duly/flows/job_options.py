"""Conversion of an action, an input and job options into a NewJob.

Everything is checked here, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args

import msgspec

from duly.errors import InvalidInput, shown
from duly.flows.collections.schema import nearest, plain, unknown_field
from duly.flows.flow import Action
from duly.flows.job_requests import JobOptions
from duly.model.jobs import DEFAULT_RETRY, MAX_INPUT_BYTES, Delivery, JobId, NewJob
from duly.model.json_bounds import check_json_bounds
from duly.model.retries import RetryPolicy
from duly.model.run_options import DEFAULTS, RUN_FIELDS, choose
from duly.model.scopes import SYSTEM, Scope, place_of_jobs
from duly.triggers.instants import to_ms

MAX_METADATA_BYTES = 4 * 1024
NO_ID = JobId("job_")
"""The id of a template: the prefix that new ids are made from."""

_encoder = msgspec.json.Encoder()
_DELIVERIES = get_args(Delivery)
_SAME = {"queue", "workspace", "priority", "retry", "delivery", "key", "correlation_id"}


def find_action(given: object, actions: Mapping[str, Action]) -> tuple[str, Action | None]:
    """Return the full name of an action, and the action if this application has it.

    A name is `flow.action`, or the action alone if only one flow has it. InvalidInput: a flow of
    this application has no such action. Other flows belong to other applications, which run them.
    """
    if isinstance(given, Action):
        return given.name, given
    if not isinstance(given, str):
        raise InvalidInput(f"action {shown(given)}; pass an action of a flow, or its name")
    known = actions.get(given)
    if known is not None or not actions:
        return given, known
    flow, dot, short = given.partition(".")
    if not dot:
        return _find_short(given, actions)
    own = [name.partition(".")[2] for name in actions if name.startswith(f"{flow}.")]
    if own:
        raise InvalidInput(f"flow {flow!r} has no action {short!r}; {nearest(short, own)}")
    return given, None


def _find_short(given: str, actions: Mapping[str, Action]) -> tuple[str, Action]:
    found = sorted(name for name in actions if name.partition(".")[2] == given)
    if len(found) == 1:
        return found[0], actions[found[0]]
    if found:
        raise InvalidInput(f"action {given!r} is in several flows; name one: {', '.join(found)}")
    short = {name.partition(".")[2] for name in actions}
    raise InvalidInput(
        f"this application has no action {given!r}; {nearest(given, short)} An action of another "
        "application is named flow.action"
    )


def template_of(
    name: str,
    known: Action | None,
    options: JobOptions,
    now_ms: int,
    aging_ms: int = 0,
) -> NewJob:
    """Return a job with everything but id and input; refuse invalid options.

    `name` is the action's full name, `known` the action if this application has it; a delay counts
    from `now_ms`.
    """
    for option in options.keys() - JobOptions.__annotations__.keys():
        raise unknown_field("a job", option, JobOptions.__annotations__)
    # None counts as not given, so that callers can pass their own defaults on.
    given = {name: value for name, value in options.items() if value is not None}
    scope = Scope.of(given.get("scope", SYSTEM))
    fields = _fields(given, now_ms)
    fields["workspace"] = place_of_jobs(scope, fields.get("workspace"))
    declared = DEFAULTS if known is None else known.options.run
    run = choose({name: fields.pop(name, None) for name in RUN_FIELDS}, declared)
    return NewJob(
        id=NO_ID,
        action=name,
        scope=str(scope),
        aging_ms=aging_ms,
        queue=run.queue,
        retry=run.retry,
        timeout_ms=run.timeout_ms,
        delivery=run.delivery,
        **fields,
    )


def encode(known: Action | None, name: str, given: object) -> str:
    """Return an input as JSON text, by the action's schema if it is known; refuse a large one."""
    check_json_bounds(f"input of {name}", given, MAX_INPUT_BYTES)
    text = known.encode(given) if known is not None else _plain_text(name, given)
    # A character has at most four bytes, so short texts need not be counted.
    if len(text) * 4 > MAX_INPUT_BYTES and (size := len(text.encode())) > MAX_INPUT_BYTES:
        raise InvalidInput(
            f"input of {name} has {size} bytes; allowed: {MAX_INPUT_BYTES}. "
            "Store large data elsewhere and pass a reference"
        )
    return text


def encode_many(known: Action | None, name: str, given: Sequence[object]) -> list[str]:
    """Return many inputs as JSON text; InvalidInput names the first bad one by its number."""
    texts: list[str] = []
    try:
        for each in given:
            texts.append(encode(known, name, each))  # noqa: PERF401
    except InvalidInput as error:
        raise InvalidInput(f"number {len(texts) + 1} of {len(given)}: {error}") from None
    return texts


def _plain_text(name: str, given: object) -> str:
    try:
        encoded = _encoder.encode(given)
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError):
        encoded = b"null"
    # What JSON cannot express becomes null, so only a null needs the slow, exact conversion.
    if b"null" in encoded:
        encoded = msgspec.json.encode(plain(f"input of {name}", given))
    return encoded.decode()


def _fields(given: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return options as fields of a NewJob; those of the same name pass unchanged."""
    fields: dict[str, Any] = {name: value for name, value in given.items() if name in _SAME}
    if fields.get("delivery", "at_least_once") not in _DELIVERIES:
        raise InvalidInput(f"delivery {given['delivery']!r}; allowed: {', '.join(_DELIVERIES)}")
    if not isinstance(fields.get("retry", DEFAULT_RETRY), RetryPolicy):
        raise InvalidInput(f"retry {shown(given['retry'])}; pass a RetryPolicy")
    if "timeout" in given:
        fields["timeout_ms"] = _ms("timeout", given["timeout"])
    if "key_ttl" in given:
        fields["key_ttl_ms"] = _ms("key_ttl", given["key_ttl"])
    if "metadata" in given:
        fields["metadata"] = _metadata(given["metadata"])
    if "run_at" in given and "delay" in given:
        raise InvalidInput("run_at and delay were both given; pass one of them")
    if "run_at" in given:
        fields["run_at_ms"] = to_ms(given["run_at"])
    if "delay" in given:
        fields["run_at_ms"] = now_ms + _ms("delay", given["delay"])
    return fields


def _ms(what: str, span: object) -> int:
    if not isinstance(span, timedelta) or span < timedelta(0):
        raise InvalidInput(f"{what} is {shown(span)}; pass a timedelta that is not negative")
    return span // timedelta(milliseconds=1)


def _metadata(facts: object) -> str:
    if not isinstance(facts, Mapping):
        raise InvalidInput(f"metadata is {shown(facts)}; pass a mapping")
    encoded = msgspec.json.encode(
        plain("metadata", facts if isinstance(facts, dict) else dict(facts), MAX_METADATA_BYTES)
    )
    if len(encoded) > MAX_METADATA_BYTES:
        raise InvalidInput(f"metadata has {len(encoded)} bytes; allowed: {MAX_METADATA_BYTES}")
    return encoded.decode()
