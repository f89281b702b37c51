"""Connections of Duly's own server: how many are accepted, and how long a client may take.

Real sockets, with h11 and with httptools. No test measures durations: a client waits until the
server does what it should, and the time limit of the test catches a server that does not.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from duly import Duly, Flow, Gateway, HttpOptions
from duly.settings import Settings
from duly.web.serving import accepting
from duly.web.serving.connections import PROBE_RESERVE, ConnectionLimits
from duly.web.serving.serving import Address, Listening, Serving
from tests.integration.http.listening import ASKED, LIMIT_S, Connect, Held, error_of, running
from tests.integration.http.site import SECRET
from tests.integration.http.test_ambiguous_requests import PARSERS

PATIENT = {"header_timeout_s": 600.0, "idle_timeout_s": 600, "body_timeout_s": 600.0}
Site = tuple[Held, Connect, Listening]
Serve = Callable[..., Site]


@pytest.fixture(params=PARSERS)
def serve(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return a function that serves a `Held` application; unnamed time limits are long."""
    monkeypatch.setattr(accepting, "SWEEP_S", 0.02)
    with ExitStack() as stack:

        def start(connections: int = 4, **limits: float) -> Site:
            held = Held()
            settings = Settings(**(PATIENT | limits))  # type: ignore[arg-type]
            listening = Listening(held, Address(port=0), settings, connections)
            return held, stack.enter_context(running(listening, request.param)), listening

        yield start


def test_a_client_that_sends_nothing_is_closed(serve: Serve) -> None:
    _, connect, _ = serve(header_timeout_s=0.1)
    assert connect().until_closed() == b""


def test_a_client_that_drips_headers_is_closed(serve: Serve) -> None:
    _, connect, _ = serve(header_timeout_s=0.3)
    client = connect()
    client.send("GET / HTTP/1.1\r\n")
    assert client.drip("X-Slow: loris\r\n") == b""


def test_a_client_that_drips_its_second_request_is_closed(serve: Serve) -> None:
    _, connect, _ = serve(header_timeout_s=0.3, idle_timeout_s=1)
    client = connect()
    assert client.ask("/", "keep-alive")[0] == 200
    client.send("GET / HTTP/1.1\r\n")
    assert client.drip("X-Slow: loris\r\n") == b""


def test_an_idle_connection_is_closed(serve: Serve) -> None:
    _, connect, _ = serve(idle_timeout_s=1)
    client = connect()
    assert client.ask("/", "keep-alive")[0] == 200
    assert client.until_closed() == b""


def test_a_slow_body_is_answered_408(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    held, connect, _ = serve(body_timeout_s=0.3)
    client = connect()
    client.send("POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n")
    answer = client.drip("x")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in answer
    assert held.ended.acquire(timeout=LIMIT_S)
    assert held.bodies == [b"gone"]
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_body_in_time_is_read_and_the_connection_goes_on(serve: Serve) -> None:
    held, connect, _ = serve()
    client = connect()
    for body in ("one", "another"):
        head = f"POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n"
        client.send(head + body)
        assert client.answer()[0] == 200
    assert held.bodies == [b"one", b"another"]


def test_an_unread_body_does_not_keep_a_connection(serve: Serve) -> None:
    _, connect, _ = serve(header_timeout_s=0.3, idle_timeout_s=1)
    client = connect()
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n")
    assert client.answer()[0] == 200
    assert client.drip("x") == b""


def test_a_client_that_reads_nothing_is_closed(serve: Serve) -> None:
    held, connect, listening = serve(body_timeout_s=0.3)
    client = connect(receive_bytes=4_096)
    client.send(ASKED.format("/large", "close"))
    assert held.begun.acquire(timeout=LIMIT_S)
    # The application waits in send() and continues when the connection is closed.
    assert held.ended.acquire(timeout=LIMIT_S)
    assert len(listening.connections) == 0


def test_a_response_may_take_longer_than_the_limits(serve: Serve) -> None:
    held, connect, _ = serve(header_timeout_s=0.1, idle_timeout_s=1, body_timeout_s=0.1)
    waiting = connect()
    waiting.send(ASKED.format("/held", "close"))
    assert held.begun.acquire(timeout=LIMIT_S)
    # A later connection was closed for its timeout, so the limits have passed.
    assert connect().until_closed() == b""
    held.release()
    assert waiting.answer()[0] == 200


def test_requests_beyond_the_limit_are_answered_503_and_probes_200(serve: Serve) -> None:
    held, connect, _ = serve(connections=4)
    busy = [connect() for _ in range(4)]
    for each in busy:
        each.send(ASKED.format("/held", "close"))
        assert held.begun.acquire(timeout=LIMIT_S)
    for _ in range(PROBE_RESERVE + 2):
        status, headers, _ = (refused := connect().ask("/"))
        assert error_of(refused) == (503, "too_many_connections")
        assert headers["retry-after"]
        # The connection is closed after a probe too, even if the client asked for keep-alive.
        probe = connect()
        status, headers, _ = probe.ask("/readyz", "keep-alive")
        assert (status, headers["connection"]) == (200, "close")
        assert probe.until_closed() == b""
    held.release()
    assert [each.answer()[0] for each in busy] == [200] * 4
    for each in busy:
        assert each.until_closed() == b""
    assert connect().ask("/")[0] == 200


def test_idle_connections_never_exceed_the_limit(serve: Serve) -> None:
    _, connect, listening = serve(connections=4)
    idle = [connect() for _ in range(100)]
    for _ in range(20):
        assert error_of(connect().ask("/")) == (503, "too_many_connections")
        assert connect().ask("/readyz")[0] == 200
        assert len(listening.connections) <= 4 + PROBE_RESERVE
    # The first four keep their connections; later ones were closed to make room.
    assert [each.ask("/")[0] for each in idle[:4]] == [200] * 4
    for each in idle[4 : 100 - PROBE_RESERVE]:
        assert each.until_closed() == b""


def test_beyond_the_reserve_connections_are_closed_at_once(serve: Serve) -> None:
    held, connect, listening = serve(connections=1)
    busy = []
    for path in ["/held"] + ["/healthz"] * PROBE_RESERVE:
        busy.append(connect())
        busy[-1].send(ASKED.format(path, "close"))
        assert held.begun.acquire(timeout=LIMIT_S)
    assert connect().until_closed() == b""
    assert len(listening.connections) == 1 + PROBE_RESERVE
    held.release()
    assert [each.answer()[0] for each in busy] == [200] * len(busy)


def test_a_full_server_logs_it_once(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    _, connect, _ = serve(connections=1)
    clients = [connect() for _ in range(50)]
    assert connect().ask("/readyz")[0] == 200
    told = [
        each for each in caplog.records if getattr(each, "event", "") == "http.connections_full"
    ]
    assert len(told) == 1
    assert len(clients) == 50


def test_bad_requests_are_logged_once(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "uvicorn.error")
    _, connect, _ = serve()
    for _ in range(20):
        client = connect()
        client.send("nonsense\r\n\r\n")
        assert b" 400 " in client.until_closed()
    assert [each.getMessage() for each in caplog.records if each.name == "uvicorn.error"].count(
        "Invalid HTTP request received."
    ) == 1


def test_a_slow_dispatch_and_a_slow_form_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Covers the API and the dashboard, which read bodies with different code."""
    monkeypatch.setattr(accepting, "SWEEP_S", 0.02)
    app = Duly("memory:", flows=[Flow("mail")], http=HttpOptions(gateways=[Gateway(SECRET)]))
    settings = Settings(body_timeout_s=0.2)
    with running(Serving(app, Address(port=0, is_development=True), settings)) as connect:
        for path in ("/api/flows/mail/schedules/s/dispatch", "/theme"):
            client = connect()
            client.send(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
            )
            assert client.drip("x").startswith(b"HTTP/1.1 408 ")
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_live_pages_leave_connections_for_others() -> None:
    settings = Settings(max_connections=8)
    app = Duly("memory:")
    with running(Serving(app, Address(port=0, is_development=True), settings)) as connect:
        streams = []
        for _ in range(2):
            client = connect()
            client.send(ASKED.format("/live?at=/", "close"))
            streams.append(client)
        # The first event shows that the stream has started and is counted.
        for each in streams:
            assert each.until(b"retry: ").startswith(b"HTTP/1.1 200 ")
        status, _, body = connect().ask("/live?at=/")
        assert (status, b"too many" in body) == (503, True)
        assert connect().ask("/healthz")[0] == 200


def test_a_server_stops_while_clients_are_idle() -> None:
    listening = Listening(Held(), Address(port=0), Settings(**PATIENT), 4)  # type: ignore[arg-type]
    with running(listening) as connect:
        idle = [connect() for _ in range(2)]
        assert idle[0].ask("/", "keep-alive")[0] == 200
        listening.stop()
        for each in idle:
            assert each.until_closed() == b""


def test_limits_follow_the_settings() -> None:
    settings = Settings(header_timeout_s=1, idle_timeout_s=2, body_timeout_s=3)
    assert ConnectionLimits.of(settings, 7) == ConnectionLimits(7, 1, 2, 3)
