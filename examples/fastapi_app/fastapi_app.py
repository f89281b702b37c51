"""Duly inside a FastAPI application: a route creates a schedule, its owner edits it over the API.

Run it: python examples/fastapi_app/fastapi_app.py. It calls the application in its own process; to
serve it, pass `api` to any ASGI server. The clock is frozen, so the output is the same every day.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
from fastapi import FastAPI, Request

from duly import Duly, Flow, Gateway, HttpOptions, Principal, user, weekly
from duly.testing.clock import ManualClock

SECRET = "a-secret-that-comes-from-the-environment"  # noqa: S105 - see DULY_DISPATCH_SECRETS
TOKENS = {"token-of-ada": "ada", "token-of-bob": "bob"}
MY = "/duly/api/flows/mail/my/schedules"

mail = Flow("mail")


@dataclass
class Digest:
    topic: str


@mail.action
async def send_digest(digest: Digest) -> None:
    print(f"a digest about {digest.topic}")


async def authenticate(request: Request) -> Principal | None:
    """Return the user as the application knows them: by session, token or a proxy's header."""
    who = TOKENS.get(request.headers.get("authorization", "").removeprefix("Bearer "))
    return None if who is None else Principal(who)


app = Duly(
    "memory:",
    flows=[mail],
    clock=ManualClock(datetime(2026, 5, 4, 7, 0, tzinfo=UTC)),
    http=HttpOptions(gateways=[Gateway(SECRET)], authenticate=authenticate),
)
api = FastAPI()
api.mount("/duly", app.asgi)


@api.post("/sign-up/{name}")
async def sign_up(name: str) -> dict[str, str]:
    """Create the first schedule of a new user."""
    mondays = weekly({"mon": "09:00"}, tz="Europe/Berlin")
    mine = app.acting_for(user(name), by="sign-up").schedules(mail)
    made = await mine.create("digest", mondays, action=send_digest, input=Digest("news"))
    return {"schedule": made.name}


async def main() -> None:
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        print("sign-up:", (await client.post("/sign-up/ada")).json())
        ada = {"authorization": "Bearer token-of-ada"}
        bob = {"authorization": "Bearer token-of-bob"}
        change = {"trigger": "0 18 * * FRI", "input": {"topic": "the week"}}
        for who, headers in (("ada", ada), ("bob", bob), ("nobody", {})):
            answer = await client.patch(f"{MY}/digest", json=change, headers=headers)
            print(f"{who} changes it:", answer.status_code, answer.json().get("words", ""))
        preview = (await client.get(f"{MY}/digest/preview?n=2", headers=ada)).json()
        print("next:", *(each["at"] for each in preview["times"]))

        gateway = {"authorization": f"Bearer {SECRET}"}
        path = "/duly/api/flows/mail/schedules/ada/digest/dispatch"
        when = {"nominalFireTime": "2026-05-08T16:00:00Z"}
        for _ in range(2):
            answer = await client.post(path, json=when, headers=gateway)
            print("dispatch:", answer.status_code, answer.json()["status"])
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
