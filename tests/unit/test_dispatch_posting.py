"""Tests of the posts of a tick, and of how it classifies answers."""

import json

import pytest

from duly.dispatch.auth.signing import signed_id
from duly.dispatch.ids import read_id
from duly.dispatch.tick.options import TickOptions, check_base_url
from duly.dispatch.tick.posting import Backoff, Reply, answer_of, post_of
from duly.errors import InvalidInput
from duly.model.dispatches import Dispatching
from duly.model.schedules import ScheduleId
from duly.model.scopes import user

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ROW = Dispatching(
    ScheduleId("sch_1"),
    "mail",
    "user:auth0|abc",
    "100%/a",
    1_777_885_200_000,
    1_777_885_260_000,
    1,
    "at_least_once",
    0,
)
BACKOFF = Backoff(10_000, 600_000)


def test_a_post_names_the_claimed_time_and_where_it_is_aimed() -> None:
    post = post_of(ROW, "https://app.example.org/duly", "bearer-secret-0123", 0)
    assert post.url == (
        "https://app.example.org/duly/api/flows/mail/schedules/auth0%7Cabc/100%25%2Fa/dispatch"
    )
    assert json.loads(post.body) == {
        "nominalFireTime": "2026-05-04T09:00:00+00:00",
        "flow": "mail",
        "scheduleId": "auth0%7Cabc/100%25%2Fa",
    }
    assert post.headers["authorization"] == "Bearer bearer-secret-0123"
    assert post.headers["content-type"] == "application/json"
    found = read_id("auth0%7Cabc/100%25%2Fa")
    assert found is not None
    assert found.key == (user("auth0|abc"), "100%/a")


def test_every_post_of_an_occurrence_is_the_same_message() -> None:
    first, second = (post_of(ROW._replace(tries=n), "http://h", KEY, 100 * n) for n in (1, 2))
    assert first.body == second.body
    assert signed_id([KEY], second.headers, second.body, 200) == "sch_1.1777885200000"
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert "authorization" not in first.headers


NOT_FOUND = b'{"error": "schedule_not_found"}'


@pytest.mark.parametrize(
    ("reply", "end"),
    [
        (Reply(200), "closed"),
        (Reply(202, b"{}"), "closed"),
        (Reply(204), "closed"),
        (Reply(409), "again"),
        (Reply(425), "again"),
        (Reply(429), "again"),
        (Reply(500, NOT_FOUND), "again"),
        (Reply(502, b"<html>"), "again"),
        (Reply(503), "again"),
        (Reply(599), "again"),
        (Reply(0, failure="ConnectionRefused"), "again"),
        (Reply(301), "failed"),
        (Reply(400), "failed"),
        (Reply(401), "failed"),
        (Reply(403, b'{"error": "denied"}'), "denied"),
        (Reply(403, b"a proxy's page"), "failed"),
        (Reply(404), "failed"),
        (Reply(404, b'{"error": "flow_not_found"}'), "failed"),
        (Reply(404, b"<html>schedule_not_found"), "failed"),
        (Reply(404, b"[" * 20_000), "failed"),
        (Reply(404, b'{"error": 5}'), "failed"),
        (Reply(404, NOT_FOUND), "not_found"),
        (Reply(410, NOT_FOUND), "failed"),
        (Reply(413), "failed"),
    ],
)
def test_answer_classes(reply: Reply, end: str) -> None:
    answer = answer_of(ROW, reply, BACKOFF, 0.5)
    assert answer.end == end
    assert (answer.schedule_id, answer.nominal_ms) == (ROW.schedule_id, ROW.nominal_ms)
    assert (answer.delay_ms > 0) == (end == "again")
    assert (answer.reason is None) == (end == "closed")


def test_delays_double_with_jitter_up_to_the_longest() -> None:
    least = [BACKOFF.delay_ms(tries, 0.0) for tries in range(1, 10)]
    most = [BACKOFF.delay_ms(tries, 1.0) for tries in range(1, 10)]
    assert most[:4] == [10_000, 20_000, 40_000, 80_000]
    assert most[-1] == 600_000
    assert least == [delay // 2 for delay in most]
    assert BACKOFF.delay_ms(1_000_000, 1.0) == 600_000


def test_retry_after_is_respected_within_an_hour() -> None:
    assert BACKOFF.delay_ms(1, 0.0, "120") == 120_000
    assert BACKOFF.delay_ms(1, 1.0, "1") == 10_000
    assert BACKOFF.delay_ms(1, 0.0, "9" * 4_000) == 3_600_000
    assert BACKOFF.delay_ms(1, 0.0, "Mon, 04 May 2026 09:00:00 GMT") == 5_000


@pytest.mark.parametrize(
    "url", ["", "app.example.org", "ftp://x", "http://", "http://a@b", "http://h?x"]
)
def test_a_base_url_has_no_query_or_credentials(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_base_url(url)
    assert "a@b" not in str(caught.value)
    assert check_base_url("https://h:8080/duly/") == "https://h:8080/duly"


@pytest.mark.parametrize(
    "options",
    [
        {"max_per_tick": 0},
        {"concurrency": 0},
        {"concurrency": 1_001},
        {"timeout_s": 0},
        {"timeout_s": 60, "lease_s": 60},
        {"base_url": "h"},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        TickOptions(**options)  # type: ignore[arg-type]
