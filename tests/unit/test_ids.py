"""Ids: version 7 by the book, and sorted by time."""

import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly.ids import new_id
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
    """Also where both clocks stand still at the same instant: chance decides, not time."""
    code = (
        "from datetime import UTC, datetime; from duly.ids import new_id; "
        "from duly.testing import ManualClock; "
        "clock = ManualClock(datetime(2026, 5, 4, tzinfo=UTC)); "
        "print(*(new_id('sch_', clock=clock) for _ in range(5_000)))"
    )
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    made = [each for process in running for each in process.communicate()[0].split()]
    assert len(made) == len(set(made)) == 10_000
    assert all(each.startswith("sch_") for each in made)
