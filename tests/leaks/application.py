"""An application that receives secrets and leaks them: in results, errors, progress and logs."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from duly import Context, Duly, Flow, RetryPolicy, every
from duly.dispatch import hmac_sha256
from duly.dispatch.options import HttpOptions
from duly.flows.resolved import ScheduleConfig
from duly.flows.webhook_routes import Routed, attribute_of
from duly.model.principals import Principal
from duly.model.schedules import Limits

URL_VARIABLE = "DULY_LEAKS_URL"
QUICKLY = RetryPolicy(attempts=2, backoff="fixed", first_delay_ms=1, jitter=False)
MUCH_LATER = RetryPolicy(attempts=2, backoff="fixed", first_delay_ms=600_000, jitter=False)
SECRETS = {
    name: f"zq{number:02}-planted-{name}-{7919 * number:06}"
    for number, name in enumerate(
        (
            *("job-password", "job-nested", "job-ssn", "schedule-token", "schedule-ssn"),
            *("raised-key", "raised-header", "result-token", "result-ssn", "progress-pin"),
            *("webhook-key", "webhook-ssn", "webhook-raised", "resolver-raised", "input-raised"),
            *("authorize-raised", "authenticate-raised", "api-password"),
            *("dispatch-secret", "sender-secret", "metrics-token", "session-secret", "operator"),
        ),
        start=11,
    )
}
"""By the place each was planted. All differ, so that a leaked one shows where it came from."""


@dataclass
class Login:
    """The input of most actions."""

    note: str
    password: str
    ssn: str
    """Secret because the actions list it in `redact`."""
    more: dict[str, Any] | None = None


work = Flow("work", limits=Limits(shortest_interval_ms=1_000))


@work.action(redact=["ssn"])
async def succeed(login: Login, ctx: Context) -> dict[str, Any]:
    """Succeed, with secrets in the progress and in the result."""
    ctx.progress(50, f"pin={SECRETS['progress-pin']}, and I know {login.password} {login.ssn}")
    return {
        "echo": f"logged in as {login.ssn} with {login.password}",
        "session_token": SECRETS["result-token"],
        "employee": {"ssn": SECRETS["result-ssn"]},
        "seen": login.note,
    }


@work.action(redact=["ssn"], retry=QUICKLY)
async def fail(login: Login) -> None:
    """Fail on both attempts."""
    raise ValueError(
        f"{login.note}: {login.password!r} of {login.ssn} was refused; "
        f"api_key={SECRETS['raised-key']}; Authorization: Bearer {SECRETS['raised-header']}"
    )


@work.action(redact=["ssn"], retry=QUICKLY)
async def stumble(login: Login, ctx: Context) -> None:
    """Fail on the first attempt only."""
    if ctx.attempt == 1:
        raise ValueError(f"{login.note}: not yet with {login.password} of {login.ssn}")


@work.action(redact=["ssn"], retry=MUCH_LATER)
async def wait_long(login: Login) -> None:
    """Fail, and wait long for the next attempt."""
    raise ValueError(f"{login.note}: later with {login.password} of {login.ssn}")


@work.action(redact=["ssn"], queue="held", timeout_s=600)
async def hold(login: Login, ctx: Context) -> None:
    """Report progress, and keep running."""
    ctx.progress(40, f"half-way with {login.password} of {login.ssn}")
    await asyncio.Event().wait()


@work.schedule(every(hours=6))
async def tidy() -> None:
    """A schedule declared in code; the action does nothing."""


def broken_input(routed: Routed) -> object:
    """Raise an error that contains the delivery."""
    raise ValueError(f"cannot read api_key {routed.body['api_key']} of {routed.body['ssn']}")


_SIGNED = hmac_sha256(header="x-signature", secret=SECRETS["sender-secret"])
_BY_PROJECT = attribute_of("projects", "code", value=lambda body: body["project"])


@work.webhook("deployed", verify=_SIGNED, route=_BY_PROJECT)
@work.action(redact=["ssn"], retry=RetryPolicy(attempts=1))
async def deployed(delivery: dict[str, Any]) -> None:
    """Receive the body unchanged, and raise an error that contains it."""
    raise ValueError(f"delivery {delivery['api_key']} of {delivery['ssn']} cannot be used")


work.webhook("broken", verify=_SIGNED, route=_BY_PROJECT, input=broken_input)(deployed)


rough = Flow("rough")


@rough.action
async def never() -> None:
    """The action of schedules whose dispatch fails."""


def raising_input(_ctx: object) -> object:
    """Raise an error that contains a secret."""
    raise RuntimeError(f"Cookie: session={SECRETS['input-raised']}")


@rough.resolve
def resolve(schedule_id: str, _ctx: object) -> ScheduleConfig:
    """Raise an error that contains a secret, or return an input function that does."""
    if schedule_id.endswith("unresolved"):
        raise RuntimeError(f"{schedule_id}: vault password={SECRETS['resolver-raised']}")
    principal = Principal(user_id="ada")
    return ScheduleConfig(
        trigger=every(hours=6), action="never", principal=principal, input=raising_input
    )


def authenticate(request: Any) -> Principal | None:
    """Return the user that the header names."""
    name = request.headers.get("x-user")
    if name == "broken":
        raise RuntimeError(f"session_key: {SECRETS['authenticate-raised']}")
    return None if name is None else Principal(user_id=name)


def authorize(_principal: Principal, schedule: Any) -> bool:
    """Raise an error that contains the input of the schedule named `unheard`."""
    if schedule.name == "unheard":
        raise RuntimeError(
            f"{schedule.definition.input['password']} of {schedule.definition.input}"
        )
    return True


app = Duly(
    os.environ.get(URL_VARIABLE, "memory:"),
    flows=[work, rough],
    authorize=authorize,
    http=HttpOptions(authenticate=authenticate),
)
