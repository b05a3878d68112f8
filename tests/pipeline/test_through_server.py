"""The same tests through a server: what Spark reads and writes over a file it reads and writes over HTTP.

The tests are those of the other modules, some of each kind; here their store is reached at http://.
"""

# ruff: noqa: F401  # imported to be collected here, with the store of this module
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater.sync
from tests.doors.live_door import LiveDoor, on_the_edge
from tests.pipeline.conftest import KEY
from tests.pipeline.store import Store
from tests.pipeline.test_losses import (
    test_records_dropped_before_they_were_read_stop_the_query_unless_it_may_go_on,
)
from tests.pipeline.test_read import (
    test_a_stretch_is_read_by_lsn_or_time,
    test_compressed_and_encrypted_queues_are_read,
    test_every_record_is_a_row_with_all_its_columns,
    test_many_segments_are_read_by_many_tasks_each_record_once,
    test_several_queues_are_read_by_name_or_pattern,
)
from tests.pipeline.test_stream import (
    batches,
    test_a_group_shows_how_far_the_stream_is_behind,
    test_a_query_reads_what_there_is_and_goes_on_where_it_was,
)
from tests.pipeline.test_write import (
    test_a_micro_batch_that_spark_forgot_to_note_is_not_pushed_again,
    test_a_stream_is_pushed_micro_batch_by_micro_batch,
    test_a_table_is_pushed_with_all_that_its_columns_say,
    test_a_table_with_an_idempotency_key_is_pushed_once,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store, open for pushes, and a server over it at whose address Spark finds it."""
    path = tmp_path / "log.db"
    with headwater.sync.open(str(path), housekeeping=False, encryption_key=KEY) as opened:
        door = LiveDoor(path, on_the_edge, housekeeping=False, encryption_key=KEY)
        door.start()
        yield Store(opened, door.url)
        door.stop()
