"""Dispatch over HTTP: the contract, resolvers, the tick and webhooks."""

from duly.dispatch.auth.secrets import Gateway
from duly.dispatch.auth.verifiers import hmac_sha1, hmac_sha256, standard_webhooks
from duly.dispatch.contract import Answer
from duly.dispatch.options import BodyLimits, HttpOptions
from duly.dispatch.resolver import ResolveContext
from duly.dispatch.tick.options import TickOptions

__all__ = [
    "Answer",
    "BodyLimits",
    "Gateway",
    "HttpOptions",
    "ResolveContext",
    "TickOptions",
    "hmac_sha1",
    "hmac_sha256",
    "standard_webhooks",
]
