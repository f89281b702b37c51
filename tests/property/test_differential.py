"""Tests of the engine against croniter and cronsim: every difference has a documented reason.

They use thousands of expressions from a fixed seed. Where the answers differ, the brute-force
oracle must agree with Duly and a row of disagreements.py must explain the difference.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError, CroniterError, croniter
from cronsim import CronSim, CronSimError

from duly import InvalidTrigger, cron
from tests.property import oracle, strategies
from tests.property.disagreements import REASONS, Answer, Disagreement, Reason, classify
from tests.property.oracle import Clocks
from tests.property.strategies import trigger_of

SEED = 20_260_308
EXPRESSIONS = 1_500 * strategies.DEPTH
FIRES = 3
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


# The three engines behind the same interface.


def ours(expression: str, tz: str, base: datetime) -> Answer:
    try:
        trigger = trigger_of(expression, Clocks(tz), seconds=has_seconds(expression))
    except InvalidTrigger:
        return Answer(refused=True)
    fires = islice(trigger.between(base, base + FIRES * oracle.HORIZON), FIRES)
    return Answer(tuple(fires))


def has_seconds(expression: str) -> bool:
    return len(expression.split()) == 6


def by_croniter(
    expression: str, tz: str, base: datetime, *, second_at_beginning: bool = True
) -> Answer:
    local = base.astimezone(ZoneInfo(tz))
    try:
        rule = croniter(expression, local, datetime, second_at_beginning=second_at_beginning)
    except CroniterError:
        return Answer(refused=True)
    fires: list[datetime] = []
    try:
        while len(fires) < FIRES:
            fires.append(rule.get_next(datetime).astimezone(UTC))
    except CroniterBadDateError:
        pass
    return Answer(tuple(fires))


def by_croniter_by_default(expression: str, tz: str, base: datetime) -> Answer:
    return by_croniter(expression, tz, base, second_at_beginning=False)


def by_cronsim(expression: str, tz: str, base: datetime) -> Answer:
    try:
        rule = CronSim(expression, base.astimezone(ZoneInfo(tz)))
    except CronSimError:
        return Answer(refused=True)
    return Answer(tuple(fire.astimezone(UTC) for fire in islice(rule, FIRES)))


Engine = Callable[[str, str, datetime], Answer]
PEERS: dict[str, Engine] = {"croniter": by_croniter, "cronsim": by_cronsim}
SIX_FIELD_PEERS = PEERS | {"croniter by default": by_croniter_by_default}


# The expressions and instants to compare.


Question = tuple[str, str, datetime]


def questions() -> Iterator[Question]:
    yield from random_questions()
    yield from questions_about_dialects()


def random_questions() -> Iterator[Question]:
    random = Random(SEED)
    for _ in range(EXPRESSIONS):
        write = random.choice([strategies.expression] * 12 + [strategies.six_fields])
        tz = random.choice(ZONES)
        yield write(random), tz, base_in(random, tz)


def base_in(random: Random, tz: str) -> datetime:
    changes = strategies.changes(tz)
    if changes and random.random() < 0.7:
        return random.choice(changes) + timedelta(seconds=random.randint(-36 * 3600, 12 * 3600))
    return datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=random.randrange(10**9))


DIALECTS = [
    "10-5 * * * *",
    "0 22-4 * * *",
    "0 0 * * FRI-MON",
    "0 0 * * SAT-SUN",
    "0 0 * * 5/2",
    "0 0 * * 1#2,5",
    "5-5 * * * *",
    "59/10 2 * * *",
    "*/61 * * * *",
    "0 */25 * * *",
    "20 0-23 * * *",
    "20 */2 * * *",
    "20 1-3 * * *",
    "*/20 1-3 * * *",
    "*/15 20 1-3 * * *",
    "27 36 1-3 * * *",
    "0 0 31 2 *",
    "0 0 */31 * 1#2",
    "0 0 30 2 1",
    "0 0 31W 2-4 *",
    "@daily",
    "@hourly",
]


def questions_about_dialects() -> Iterator[Question]:
    """Yield forms that crons read differently, every 20 minutes around two clock changes."""
    for tz in ZONES:
        for change in strategies.changes_in(tz, 2026) or [datetime(2026, 3, 8, 7, tzinfo=UTC)]:
            for thirds_of_hours in range(-6, 4):
                base = change + timedelta(minutes=20 * thirds_of_hours)
                yield from ((expression, tz, base) for expression in DIALECTS)


def disagreements() -> Iterator[Disagreement]:
    for expression, tz, base in questions():
        own = ours(expression, tz, base)
        peers = SIX_FIELD_PEERS if has_seconds(expression) and tz == "UTC" else PEERS
        for library, ask in peers.items():
            theirs = ask(expression, tz, base)
            if theirs != own:
                yield Disagreement(library, expression, tz, base, own, theirs)


# Classification of differences.


def oracle_sides_with_us(case: Disagreement) -> bool:
    clocks = Clocks(case.tz)
    if case.ours.refused:
        return not oracle.is_expression(case.expression, seconds=has_seconds(case.expression))
    if not case.ours.fires:
        return oracle.cron_next(case.expression, clocks, case.base) is None
    after, found = case.base, []
    for _ in case.ours.fires:
        after = oracle.cron_next(case.expression, clocks, after) or case.base
        found.append(after)
    return tuple(found) == case.ours.fires


def explanation(case: Disagreement) -> Reason | None:
    """Return the reason for a difference, if the oracle agrees with Duly, else None."""
    return classify(case) if oracle_sides_with_us(case) else None


def test_every_disagreement_is_explained(
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    counts: Counter[str] = Counter()
    unexplained = []
    for case in disagreements():
        reason = explanation(case)
        if reason:
            counts[reason.name] += 1
        else:
            unexplained.append(case)
    for name, count in counts.items():
        record_testsuite_property(name, count)
    assert not unexplained, "\n".join(map(describe, unexplained))
    assert set(counts) == {reason.name for reason in REASONS}, "a reason without a case"


def describe(case: Disagreement) -> str:
    expected = (
        "" if case.ours.refused else oracle.cron_next(case.expression, Clocks(case.tz), case.base)
    )
    return (
        f"{case.library}: {case.expression!r} in {case.tz} after {case.base.isoformat()}\n"
        f"  ours   {in_words(case.ours)}\n"
        f"  theirs {in_words(case.theirs)}\n"
        f"  oracle {expected}"
    )


def in_words(answer: Answer) -> str:
    return "refused" if answer.refused else " ".join(fire.isoformat() for fire in answer.fires)


@pytest.mark.parametrize(
    ("expression", "day"), [("30 1 * * *", "11-01"), ("20 */2 * * *", "03-08")]
)
def test_nothing_excuses_a_wrong_answer_of_ours(expression: str, day: str) -> None:
    """With the answers swapped, a reason may fit, but the oracle disagrees."""
    base = utc(f"2026-{day}T05:15")
    own, theirs = (ask(expression, "America/New_York", base) for ask in (ours, by_croniter))
    right = Disagreement("croniter", expression, "America/New_York", base, own, theirs)
    wrong = Disagreement("croniter", expression, "America/New_York", base, theirs, own)
    assert explanation(right)
    assert explanation(wrong) is None


def test_nothing_excuses_a_difference_without_a_reason() -> None:
    base = utc("2026-06-01T12:00")
    own = ours("0 9 * * *", "Europe/Berlin", base)
    theirs = Answer(tuple(fire + timedelta(minutes=1) for fire in own.fires))
    for library in PEERS:
        case = Disagreement(library, "0 9 * * *", "Europe/Berlin", base, own, theirs)
        assert explanation(case) is None


def test_reasons_are_sentences_with_one_name_each() -> None:
    assert len({reason.name for reason in REASONS}) == len(REASONS)
    assert all(reason.why.endswith(".") and reason.library in reason.name for reason in REASONS)


# The vectors of the requirements, part (c): Duly's answers where crons differ.


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


VECTORS = [
    ("0 0 13 * 5", "UTC", "2026-03-07T12:00", "03-13T00:00 03-20T00:00 03-27T00:00"),
    ("0 0 29 2 *", "UTC", "2027-03-01T00:00", "02-29T00:00"),
    ("0 9 * * 7", "UTC", "2026-03-07T12:00", "03-08T09:00 03-15T09:00"),
    ("0 9 * * MON", "UTC", "2026-03-07T12:00", "03-09T09:00 03-16T09:00"),
    ("0 9 * * MON-FRI", "UTC", "2026-03-07T12:00", "03-09T09:00 03-10T09:00 03-11T09:00"),
    ("0 9 1 JAN *", "UTC", "2026-03-07T12:00", "01-01T09:00"),
    ("@daily", "UTC", "2026-03-07T12:00", "03-08T00:00 03-09T00:00"),
    ("30 2 * * *", "America/New_York", "2026-03-07T12:00", "03-08T07:00 03-09T06:30"),
    ("30 1 * * *", "America/New_York", "2026-11-01T00:00", "11-01T05:30 11-02T06:30"),
    ("*/30 * * * *", "America/New_York", "2026-11-01T04:45", "11-01T05:00 11-01T05:30 11-01T06:00"),
    ("0 0 L * *", "UTC", "2026-03-07T12:00", "03-31T00:00 04-30T00:00"),
    ("0 0 * * 1#2", "UTC", "2026-03-07T12:00", "03-09T00:00 04-13T00:00"),
    ("0 0 * * 5L", "UTC", "2026-03-07T12:00", "03-27T00:00 04-24T00:00"),
    ("0 0 15W * *", "UTC", "2026-03-07T12:00", "03-16T00:00 04-15T00:00"),
    ("0 0 29 2 *", "UTC", "2096-03-01T00:00", "02-29T00:00"),
]


@pytest.mark.parametrize(("expression", "tz", "base", "expected"), VECTORS)
def test_vectors(expression: str, tz: str, base: str, expected: str) -> None:
    trigger = cron(expression, tz=tz)
    found = islice(trigger.between(utc(base), utc("2110-01-01")), len(expected.split()))
    assert [f"{fire:%m-%dT%H:%M}" for fire in found] == expected.split()


def test_vector_leap_years() -> None:
    rule = cron("0 0 29 2 *")
    assert rule.next_after(utc("2026-03-07T12:00")) == utc("2028-02-29")
    assert rule.next_after(utc("2096-03-01")) == utc("2104-02-29")


def test_vector_six_fields_begin_with_seconds() -> None:
    found = cron("*/10 * * * * *", seconds=True).next_after(utc("2026-03-07T12:00"))
    assert found == utc("2026-03-07T12:00:10")


REFUSED = [
    "",
    "5",
    "* *",
    "0 0 31 2 *",
    "*/10 * * * * *",
    "60 * * * *",
    "*/0 * * * *",
    "@reboot",
    "10-5 * * * *",
]


@pytest.mark.parametrize("expression", REFUSED)
def test_vectors_refused(expression: str) -> None:
    with pytest.raises(InvalidTrigger):
        cron(expression)


def test_vector_unknown_zone_is_refused() -> None:
    with pytest.raises(InvalidTrigger):
        cron("0 9 * * *", tz="Europe/Atlantis")


def test_vector_hash_needs_a_key() -> None:
    """`H` is never random: without a key there is no answer."""
    with pytest.raises(InvalidTrigger, match="bind"):
        cron("H * * * *").next_after(utc("2026-03-07T12:00"))


@pytest.fixture
def host_in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("host_in_new_york")
def test_vector_the_zone_of_the_host_is_never_used() -> None:
    assert cron("0 9 * * *").next_after(utc("2026-07-01")) == utc("2026-07-01T09:00")
