"""Tests of ids: UUID version 7, ordered by time and by creation."""

import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.engine.ids import MAX_NEW, new_id, new_ids
from duly.errors import InvalidInput
from duly.testing import ManualClock

START = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)


def test_an_id_is_a_prefix_and_a_version_7_uuid() -> None:
    made = new_id("sch_")
    assert made.startswith("sch_")
    assert len(made) == 4 + 32
    number = uuid.UUID(hex=made.removeprefix("sch_"))
    assert (number.version, number.variant) == (7, uuid.RFC_4122)


def test_the_example_of_the_standard() -> None:
    # RFC 9562, appendix A.6: 017F22E2-79B0-7CC3-98C4-DC0C0C07398F.
    clock = ManualClock(datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC))
    chance = (0xCC3 << 68) | 0x18C4_DC0C_0C07_398F
    made = new_id("", clock=clock, entropy=lambda size: chance.to_bytes(size, "big"))
    assert made == "017f22e279b07cc398c4dc0c0c07398f"


@given(st.integers(0, 10**12), st.integers(1, 10**9), st.binary(min_size=20, max_size=20))
def test_a_later_millisecond_sorts_later(ms: int, more: int, chance: bytes) -> None:
    clock = ManualClock(START + timedelta(milliseconds=ms))
    first = new_id("res_", clock=clock, entropy=lambda size: chance[:size])
    clock.advance(milliseconds=more)
    second = new_id("res_", clock=clock, entropy=lambda size: chance[-size:])
    assert first < second
    assert len(first) == len(second)


def test_ids_of_one_millisecond_differ() -> None:
    clock = ManualClock(START)
    assert len({new_id("", clock=clock) for _ in range(1_000)}) == 1_000


def test_ids_of_many_processes_differ() -> None:
    """Ids are random, so they differ even if all clocks show the same instant."""
    code = (
        "from datetime import UTC, datetime; from duly.engine.ids import new_id; "
        "from duly.testing import ManualClock; "
        "clock = ManualClock(datetime(2026, 5, 4, tzinfo=UTC)); "
        "print(*(new_id('sch_', clock=clock) for _ in range(5_000)))"
    )
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    made = [each for process in running for each in process.communicate()[0].split()]
    assert len(made) == len(set(made)) == 10_000
    assert all(each.startswith("sch_") for each in made)


def test_ids_made_together_are_version_7_uuids() -> None:
    clock = ManualClock(START)
    for made in new_ids("job_", 100, clock=clock):
        number = uuid.UUID(hex=made.removeprefix("job_"))
        assert (number.version, number.variant) == (7, uuid.RFC_4122)
        assert made[:16] == new_id("job_", clock=clock)[:16]


@pytest.mark.parametrize("byte", [b"\x00", b"\xff", b"\x3f"])
def test_ids_made_together_rise(byte: bytes) -> None:
    """They also rise where the counter crosses from one part of the id to the next."""
    count = 1 << 15
    made = new_ids("job_", count, entropy=lambda size: byte * size)
    assert made == sorted(made)
    assert len(set(made)) == count
    assert {len(each) for each in made} == {36}


def test_the_counter_does_not_run_over() -> None:
    largest = new_ids("", 1, entropy=lambda size: b"\xff" * size)[0]
    counter = (int(largest[13:16], 16) << 14) | (int(largest[16:20], 16) & 0x3FFF)
    assert counter + MAX_NEW <= 1 << 26


def test_ids_of_two_calls_in_one_millisecond_differ() -> None:
    clock = ManualClock(START)
    made = [each for _ in range(100) for each in new_ids("", 100, clock=clock)]
    assert len(set(made)) == 10_000


def test_a_later_call_sorts_later() -> None:
    clock = ManualClock(START)
    first = new_ids("", 10, clock=clock, entropy=lambda size: b"\xff" * size)
    clock.advance(milliseconds=1)
    second = new_ids("", 10, clock=clock, entropy=lambda size: b"\x00" * size)
    assert max(first) < min(second)


def test_the_number_of_ids_is_bounded() -> None:
    assert new_ids("job_", 0) == []
    for count in (-1, MAX_NEW + 1):
        with pytest.raises(InvalidInput, match="ids at once"):
            new_ids("job_", count)
