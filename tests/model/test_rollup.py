"""Rollups add up, whatever the order, and tell quantiles of any sum."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import SECOND
from headwater.model.rollup import Rollup, add, add_up, bin_of, in_resolution, quantile

counts = st.integers(0, 1_000)
rows = st.builds(
    Rollup,
    queue=st.sampled_from(["orders", "mails"]),
    bucket=st.sampled_from([0, 60 * SECOND]),
    pushed=counts,
    bytes=counts,
    late=counts,
    completed=counts,
    latency_total=counts,
    latency_max=counts,
    latency_bins=st.dictionaries(st.integers(0, 5), counts),
    lag_max=counts,
    retried=counts,
    buried=counts,
)


@given(st.lists(rows), st.randoms())
def test_rows_add_up_to_the_same_in_any_order(given_rows: list[Rollup], random: object) -> None:
    shuffled = list(given_rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    ordered = sorted(add_up(given_rows), key=lambda row: (row.queue, row.bucket))
    assert sorted(add_up(shuffled), key=lambda row: (row.queue, row.bucket)) == ordered
    assert sum(row.pushed for row in ordered) == sum(row.pushed for row in given_rows)


def test_the_greatest_lag_and_latency_of_two_rows_stand() -> None:
    one, other = Rollup(queue="q", bucket=0, lag_max=3, latency_max=9), Rollup(queue="q", bucket=0, lag_max=5)
    assert (add(one, other).lag_max, add(one, other).latency_max) == (5, 9)


def test_a_minute_belongs_to_its_hour_and_day() -> None:
    row = Rollup(queue="q", bucket=(86_400 + 3_600 + 120) * SECOND)
    assert in_resolution(row, "hour").bucket == (86_400 + 3_600) * SECOND
    assert in_resolution(row, "day").bucket == 86_400 * SECOND


@given(st.lists(st.integers(0, 10**10), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_above_its_share_of_latencies_by_a_fifth_at_most(latencies: list[int], share: float) -> None:
    bins: dict[int, int] = {}
    for latency in latencies:
        bins[bin_of(latency)] = bins.get(bin_of(latency), 0) + 1
    told = quantile(bins, share)
    needed = next(rank for rank in range(1, len(latencies) + 1) if rank >= share * len(latencies))
    exact = sorted(latencies)[needed - 1] / 1_000
    assert told is not None
    assert exact - 0.01 <= told <= (exact + 1) * 1.19


def test_nothing_has_no_quantile() -> None:
    assert quantile({}, 0.5) is None
