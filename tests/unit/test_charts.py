"""Tests of charts: shapes, labels, and escaping."""

from datetime import UTC, date, datetime, timedelta
from typing import get_args
from xml.etree import ElementTree as ET

import pytest
from markupsafe import Markup

from duly.operate.forecast import Forecast
from duly.operate.health import Level
from duly.operate.summary_views import Minute
from duly.triggers import cron, every
from duly.triggers.instants import to_ms
from duly.web.dashboard import charts
from duly.web.dashboard.calendar import MAX_TIMES, planned_days, with_plans
from duly.web.dashboard.icons import badge, icon, tone

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
BARS = ".//rect[@class]"


def parsed(svg: Markup) -> ET.Element:
    return ET.fromstring(str(svg))  # noqa: S314 - made here


def bars(svg: Markup, kind: str = "") -> list[ET.Element]:
    found = parsed(svg).findall(BARS)
    return [each for each in found if f"bar {kind}".strip() in each.get("class", "")]


def test_forecast_has_a_bar_for_every_busy_slot() -> None:
    minutes = [0] * 1440
    minutes[5] = minutes[7] = 3
    minutes[725] = 9
    svg = charts.forecast_chart(Forecast(to_ms(NOON), tuple(minutes), is_estimate=False, rows=2))
    assert len(bars(svg)) == 2
    assert parsed(svg).get("aria-label") == (
        "Fires per minute for the next 24 hours, at most 9 at 00:05 UTC"
    )
    titles = [each.findtext("title") for each in bars(svg)]
    assert titles[0] == "Mon 12:00 UTC: 6 in ten minutes, at most 3 a minute"
    heights = [float(each.get("height", "0")) for each in bars(svg)]
    assert heights[1] == pytest.approx(3 * heights[0], rel=0.02)


def test_empty_forecast_is_a_chart_too() -> None:
    assert (
        bars(charts.forecast_chart(Forecast(to_ms(NOON), (0,) * 1440, is_estimate=False, rows=0)))
        == []
    )
    assert bars(charts.forecast_chart(Forecast(to_ms(NOON), (), is_estimate=False, rows=0))) == []


def test_minutes_are_stacked() -> None:
    minutes = [Minute(NOON + timedelta(minutes=i)) for i in range(59)]
    minutes.append(Minute(NOON + timedelta(minutes=59), succeeded=3, dead=1, cancelled=2))
    svg = charts.minutes_chart(minutes)
    good, bad, calm = (bars(svg, kind)[0] for kind in ("good", "bad", "steady"))
    assert float(good.get("y", "0")) > float(calm.get("y", "0")) > float(bad.get("y", "0"))
    assert bad.findtext("title") == "12:59 UTC: 1 dead"


def test_lateness_is_grouped_into_ranges() -> None:
    svg = charts.lateness_chart([0, 100, 101, 400_000])
    values = [each.text for each in parsed(svg).findall(".//text[@class='value']")]
    assert values == ["2", "1", "0", "0", "0", "0", "1"]


def test_sparkline_is_scaled_to_the_maximum() -> None:
    line = parsed(charts.sparkline([0, 5, 10])).find("polyline")
    assert line is not None
    heights = [float(each.split(",")[1]) for each in (line.get("points") or "").split()]
    assert heights == sorted(heights, reverse=True)
    assert charts.sparkline([]) == charts.sparkline([0, 0])


def test_calendar_has_a_cell_for_every_day() -> None:
    days = charts.past_days(
        [
            (date(2026, 3, 1), "succeeded", 2),
            (date(2026, 3, 1), "failed", 1),
            (date(2026, 2, 28), "succeeded", 1),
        ]
    )
    assert days[date(2026, 3, 1)] == charts.Day(3, "bad", "1 failed, 2 succeeded")
    svg = charts.heat_map(with_plans(days, {date(2026, 3, 3): 4}), date(2026, 3, 2))
    cells = parsed(svg).findall(BARS)
    assert len(cells) == 27 * 7
    kinds = {each.findtext("title"): each.get("class", "") for each in cells}
    assert "bad" in kinds["Sun 01 Mar: 1 failed, 2 succeeded"]
    assert "wait" in kinds["Tue 03 Mar: 4 planned"]
    assert "today" in kinds["Mon 02 Mar: nothing"]


def test_future_days_are_counted_in_the_zone_of_the_rule() -> None:
    trigger = cron("30 23 * * *", tz="America/New_York").bind("a", NOON)
    days = planned_days(trigger.to_json(), NOON, days=3)
    assert days == {date(2026, 3, 2): 1, date(2026, 3, 3): 1, date(2026, 3, 4): 1}


def test_future_days_of_frequent_rules_are_like_past_days() -> None:
    days = planned_days(every(seconds=60).bind("a", NOON).to_json(), NOON, days=10)
    assert sum(days.values()) > MAX_TIMES
    assert days[date(2026, 3, 8)] == 1440
    assert planned_days({"kind": "tide"}, NOON) == {}


def test_todays_plans_are_added_to_past_runs() -> None:
    past = {date(2026, 3, 2): charts.Day(1, "bad", "1 failed")}
    days = with_plans(past, {date(2026, 3, 2): 2})
    assert days[date(2026, 3, 2)] == charts.Day(3, "bad", "1 failed; 2 to come")


def test_strip_shows_failures_by_shape() -> None:
    good, bad = bars(charts.strip([("succeeded", "a"), ("failed", "b")]))
    assert (good.get("y"), good.get("height")) != (bad.get("y"), bad.get("height"))


def test_spans_share_a_scale() -> None:
    second = timedelta(seconds=1)
    spans = [
        charts.Span(NOON, NOON + second, "faint", "waited", 0),
        charts.Span(NOON + second, NOON + 3 * second, "good", "attempt 1", 0),
    ]
    short, long = bars(charts.spans_chart(spans))
    assert float(long.get("width", "0")) == pytest.approx(2 * float(short.get("width", "0")), 0.01)
    assert charts.spans_chart([]) == ""


def test_meter_is_never_more_than_full() -> None:
    assert 'width="80.0"' in charts.meter(9, 3, "x")
    assert 'width="0.0"' in charts.meter(0, 0, "x")


@pytest.mark.parametrize(
    ("value", "top"), [(0, 4), (3, 4), (5, 5), (11, 20), (41, 50), (60, 80), (99, 100), (101, 200)]
)
def test_scales_end_at_round_numbers(value: float, top: float) -> None:
    assert charts.nice(value) == top


def test_words_are_escaped() -> None:
    evil = "<script>alert(1)</script>"
    for made in (
        charts.strip([("failed", evil)]),
        charts.meter(1, 2, f'"{evil}'),
        charts.rank_chart([(evil, 1, None)], evil),
        badge(evil),
        badge("dead", evil),
    ):
        assert "<script" not in made


def test_every_tone_has_shapes_of_its_own() -> None:
    assert tone("succeeded") == "good"
    assert tone("nobody knows") == "steady"
    shapes = {
        state: str(badge(state, "x")) for state in ("succeeded", "dead", "retrying", "queued")
    }
    assert len({each.partition("<svg")[2] for each in shapes.values()}) == 4
    assert 'aria-hidden="true"' in icon("check")


@pytest.mark.parametrize("most", [9, 99_999, 10_000_000])
def test_no_label_of_a_scale_is_cut_off(most: int) -> None:
    """Labels end left of the bars, and must not start left of the chart."""
    minutes = [Minute(NOON, succeeded=most)]
    forecast = Forecast(to_ms(NOON), (most,), is_estimate=False, rows=2)
    for svg in (charts.minutes_chart(minutes), charts.forecast_chart(forecast)):
        labels = [each for each in parsed(svg).iter("text") if each.get("class") == "scale"]
        assert len(labels) == 3
        for label in labels:
            assert float(label.get("x", "0")) >= 6.2 * len(label.text or ""), label.text


@pytest.mark.parametrize("most", [9, 99_999, 10_000_000])
def test_no_number_beside_a_bar_is_cut_off(most: int) -> None:
    svg = parsed(charts.rank_chart([("all", most, None)], "all", width=360))
    (value,) = [each for each in svg.iter("text") if each.get("class") == "value"]
    assert float(value.get("x", "0")) + 6.2 * len(value.text or "") <= 360


def test_every_health_level_has_a_tone() -> None:
    assert {level: tone(level) for level in get_args(Level)} == {
        "ok": "good",
        "warning": "warn",
        "bad": "bad",
    }
