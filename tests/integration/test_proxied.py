"""Behind a proxy: which forwarded headers are trusted, over real sockets."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

import pytest

from duly import Duly
from duly.settings import Settings
from duly.web.operators.accounts import hash_password
from duly.web.serving.serving import Address, Serving

PASSWORD = "correct horse"  # noqa: S105
PROXY = "127.0.0.2"
OPERATORS = f"ada:operator:{hash_password(PASSWORD)}"


class Proxied:
    """A server, called by a proxy from another address."""

    def __init__(self, settings: Settings) -> None:
        self.serving = Serving(Duly("memory:"), Address(port=0), settings)
        self.port = int(self.serving.url.rpartition(":")[2])

    async def sign_in(self, of: str, name: str, password: str) -> tuple[int, str]:
        """Sign in through the proxy; return the status and the cookie."""
        body = urlencode({"name": name, "password": password})
        head = (
            "POST /sign-in HTTP/1.1",
            "Host: duly.example.org",
            f"X-Forwarded-For: {of}",
            "X-Forwarded-Proto: https",
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        come, go = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(PROXY, 0))
        go.write(("\r\n".join(head) + "\r\n\r\n" + body).encode())
        lines = (await come.read()).decode().split("\r\n")
        go.close()
        cookies = [each for each in lines if each.lower().startswith("set-cookie")]
        return int(lines[0].split()[1]), "".join(cookies)


async def visited(settings: Settings) -> tuple[int, int, str]:
    """Return ada's statuses before and after a stranger's five wrong passwords, and her cookie."""
    site = Proxied(settings)
    running = asyncio.create_task(site.serving.run())
    before, cookie = await site.sign_in("10.1.1.1", "ada", PASSWORD)
    for number in range(5):
        status, _ = await site.sign_in("203.0.113.9", f"nobody{number}", "wrong-password")
        assert status == 401
    after, _ = await site.sign_in("10.1.1.1", "ada", PASSWORD)
    site.serving.stop()
    await running
    return before, after, cookie


@pytest.mark.parametrize("trusted", [PROXY, "127.0.0.0/24"])
def test_clients_behind_a_trusted_proxy_are_limited_separately(trusted: str) -> None:
    settings = Settings(operators=OPERATORS, trusted_proxies=(trusted,))
    before, after, cookie = asyncio.run(visited(settings))
    assert (before, after) == (303, 303)
    assert "; Secure" in cookie


def test_headers_of_untrusted_clients_are_ignored() -> None:
    before, after, cookie = asyncio.run(visited(Settings(operators=OPERATORS)))
    assert (before, after) == (303, 429)
    assert cookie
    assert "Secure" not in cookie
