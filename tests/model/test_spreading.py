"""Messages without a partition: which lane each gets, and how ready partitions are shared out."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.names import PARTITION_DEFAULT, check_name
from headwater.model.queue import LANES_MAX
from headwater.model.spreading import deal, lane_name, lane_of_id, share_of

counts = st.integers(1, 1_000)
lanes = st.integers(1, LANES_MAX)


@given(counts, lanes, st.integers(0, 10_000))
def test_every_message_is_dealt_once_and_neighbours_stay_together(count: int, lanes: int, turn: int) -> None:
    chunks = list(deal(count, lanes, turn))
    assert [place for _, begin, end in chunks for place in range(begin, end)] == list(range(count))


@given(counts, lanes, st.integers(0, 10_000))
def test_as_many_lanes_are_used_as_can_be_and_none_gets_much_more(count: int, lanes: int, turn: int) -> None:
    chunks = list(deal(count, lanes, turn))
    assert len({lane for lane, _, _ in chunks}) == len(chunks) == min(count, lanes)
    sizes = [end - begin for _, begin, end in chunks]
    assert max(sizes) - min(sizes) <= 1
    assert chunks[0][0] == turn % lanes


@given(st.text(min_size=1), lanes)
def test_a_transaction_id_always_has_the_same_lane(identity: str, lanes: int) -> None:
    assert 0 <= lane_of_id(identity, lanes) < lanes
    assert lane_of_id(identity, lanes) == lane_of_id(identity, lanes)


def test_the_lane_of_an_id_is_the_same_in_every_version() -> None:
    assert [lane_of_id(f"order-{number}", 16) for number in range(6)] == [9, 15, 5, 3, 0, 6]


def test_the_first_lane_is_the_partition_of_a_queue_with_one() -> None:
    assert lane_name(0) == PARTITION_DEFAULT
    names = {lane_name(lane) for lane in range(LANES_MAX)}
    assert len(names) == LANES_MAX
    assert all(check_name("partition", name) for name in names)


@given(st.integers(0, 1_000), st.integers(1, 1_000))
def test_the_shares_of_all_who_wait_leave_something_for_everybody_while_there_is_enough(
    ready: int, sharers: int
) -> None:
    share = share_of(ready, sharers)
    assert share >= 1
    if ready >= sharers:
        assert share * sharers <= ready
