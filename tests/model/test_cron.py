"""Cron lines and lengths of time."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidOption
from headwater.model.cron import next_cron, next_every, parse_cron
from headwater.model.durations import parse_duration


def at(text: str) -> Timestamp:
    return Timestamp(int(datetime.fromisoformat(text).timestamp()) * SECOND)


def show(moment: Timestamp) -> str:
    return datetime.fromtimestamp(moment / SECOND, UTC).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("*/15 * * * *", "2026-01-01T10:01:00Z", "2026-01-01 10:15"),
        ("0 3 * * *", "2026-01-01T03:00:00Z", "2026-01-02 03:00"),
        ("30 8 * * mon-fri", "2026-01-02T09:00:00Z", "2026-01-05 08:30"),
        ("0 0 31 * *", "2026-02-01T00:00:00Z", "2026-03-31 00:00"),
        ("0 12 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02 12:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29 00:00"),
        ("5,10 0-2 1 jan *", "2026-01-01T00:06:00Z", "2026-01-01 00:10"),
        ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04 00:00"),
        ("0 0 * * 7", "2026-01-01T00:00:00Z", "2026-01-04 00:00"),
    ],
)
def test_the_next_time_of_a_line(line: str, after: str, expected: str) -> None:
    assert show(next_cron(line, "UTC", at(after))) == expected


# January and October 2026 begin on a Thursday, March on a Sunday. The clocks of Berlin go forward on Sunday 29 March,
# back on Sunday 25 October. A day field that begins with * counts as not given, as in Vixie's cron.
@pytest.mark.parametrize(
    ("line", "month", "days"),
    [
        ("0 0 13 * fri", "2026-01", [2, 9, 13, 16, 23, 30]),
        ("0 0 1-7 * mon", "2026-01", [1, 2, 3, 4, 5, 6, 7, 12, 19, 26]),
        ("0 0 */2 * mon", "2026-01", [5, 19]),
        ("0 0 1-31/2 * mon", "2026-01", sorted([*range(1, 32, 2), 12, 26])),
        ("0 0 13 * */2", "2026-01", [13]),
        ("0 0 14 * */2", "2026-01", []),
        ("0 0 14 * 0-6/2", "2026-01", [1, 3, 4, 6, 8, 10, 11, 13, 14, 15, 17, 18, 20, 22, 24, 25, 27, 29, 31]),
        ("0 0 */10 * */3", "2026-01", [11, 21, 31]),
        ("0 0 *,13 * fri", "2026-01", [2, 9, 16, 23, 30]),
        ("0 0 * * fri", "2026-01", [2, 9, 16, 23, 30]),
        ("0 0 13 * *", "2026-01", [13]),
        ("30 2 */2 * sun", "2026-10", [11, 25]),
        ("30 2 24 * sun", "2026-10", [4, 11, 18, 24, 25]),
        ("30 2 */2 * sun", "2026-03", [1, 15]),
        ("30 2 28 * sun", "2026-03", [1, 8, 15, 22, 28]),
        ("30 3 */2 * sun", "2026-03", [1, 15, 29]),
    ],
)
def test_days_of_the_month_and_of_the_week_together_mean_what_they_mean_in_cron(
    line: str, month: str, days: list[int]
) -> None:
    zone = ZoneInfo("Europe/Berlin")
    moment = at(f"{month}-01T00:00:00+0{1 if month < '2026-03-29' else 2}:00") - 1
    found = []
    while True:
        moment = next_cron(line, "Europe/Berlin", Timestamp(moment))
        shown = datetime.fromtimestamp(moment / SECOND, zone)
        if shown.strftime("%Y-%m") != month:
            break
        found.append(shown.day)
    assert found == days


def test_a_line_means_the_wall_clock_of_its_zone_in_summer_and_in_winter() -> None:
    assert show(next_cron("0 8 * * *", "Europe/Berlin", at("2026-01-10T00:00:00Z"))) == "2026-01-10 07:00"
    assert show(next_cron("0 8 * * *", "Europe/Berlin", at("2026-07-10T00:00:00Z"))) == "2026-07-10 06:00"


def test_a_time_that_the_change_to_summer_time_leaves_out_is_skipped() -> None:
    assert show(next_cron("30 2 * * *", "Europe/Berlin", at("2026-03-28T12:00:00Z"))) == "2026-03-30 00:30"


def test_a_time_that_the_change_back_repeats_comes_once() -> None:
    first = next_cron("30 2 * * *", "Europe/Berlin", at("2026-10-24T12:00:00Z"))
    assert show(first) == "2026-10-25 00:30"
    assert show(next_cron("30 2 * * *", "Europe/Berlin", first)) == "2026-10-26 01:30"


def test_an_hourly_job_runs_every_hour_when_the_clocks_are_put_back() -> None:
    """In Berlin 02:00 to 03:00 was there twice on 25 October 2026, and not at all on 29 March."""
    for line, begin, minutes in (
        ("0 * * * *", "2026-10-24T22:30:00Z", 60),
        ("*/30 * * * *", "2026-10-24T22:30:00Z", 30),
        ("*/15 * * * *", "2026-10-24T22:45:00Z", 15),
        ("0 * * * *", "2026-03-28T23:30:00Z", 60),
    ):
        moment = next_cron(line, "Europe/Berlin", at(begin))
        for _ in range(12):
            following = next_cron(line, "Europe/Berlin", moment)
            assert following - moment == minutes * 60 * SECOND, line
            moment = following


@pytest.mark.parametrize(
    ("line", "times"),
    [
        ("*/20 2 * * *", ["00:00", "00:20", "00:40", "01:00", "01:20", "01:40"]),
        ("0 1-4 * * *", ["23:00", "00:00", "02:00", "03:00"]),
        ("0 0-23 * * *", ["22:00", "23:00", "00:00", "02:00", "03:00"]),
    ],
)
def test_only_a_line_with_an_open_minute_or_hour_comes_twice_in_the_repeated_hour(line: str, times: list[str]) -> None:
    moment, found = at("2026-10-24T21:59:00Z"), list[str]()
    while (moment := next_cron(line, "Europe/Berlin", moment)) < at("2026-10-25T03:30:00Z"):
        found.append(show(moment).partition(" ")[2])
    assert found == times


def test_a_time_of_day_comes_once_when_the_clocks_are_put_back() -> None:
    first = next_cron("30 2 * * *", "Europe/Berlin", at("2026-10-24T12:00:00Z"))
    assert first == at("2026-10-25T00:30:00Z")
    assert next_cron("30 2 * * *", "Europe/Berlin", first) == at("2026-10-26T01:30:00Z")


@pytest.mark.parametrize(
    "line",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *", "* * 0 * *", "1, * * * *"],
)
def test_a_line_that_means_nothing_is_refused(line: str) -> None:
    with pytest.raises(InvalidOption):
        parse_cron(line)


def test_a_line_whose_day_never_comes_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no day"):
        next_cron("0 0 31 2 *", "UTC", at("2026-01-01T00:00:00Z"))


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(InvalidOption, match="time zone"):
        next_cron("@daily", "Mars/Olympus", at("2026-01-01T00:00:00Z"))


def test_what_was_missed_does_not_pile_up() -> None:
    start = at("2026-01-01T00:00:00Z")
    assert next_every(60, start, Timestamp(start + 1_000 * SECOND)) == start + 1_020 * SECOND


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("45s", 45), ("1.5m", 90), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_a_length_of_time_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "-1s", "1y", "1h30", "nan"])
def test_a_length_of_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_duration(text)
