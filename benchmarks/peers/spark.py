"""Headwater through Spark in local mode: its Java process and Python workers are children of the measured one."""

from contextlib import AbstractAsyncContextManager

from benchmarks.peers import Context, Peer, Queue


def no_queue(context: Context) -> AbstractAsyncContextManager[Queue]:
    """Spark has tables and streams, not the verbs of a queue."""
    raise NotImplementedError


PEERS = {"spark": Peer(("pyspark", "pyarrow", "apsw"), "synced: each push of the sink waits for the disk", no_queue)}
