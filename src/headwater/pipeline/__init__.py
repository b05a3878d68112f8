"""The data pipeline on Spark: the log as a source and a sink, and the flows that need no code.

>>> from headwater.pipeline import read, start_session
>>> spark = start_session()
>>> read(spark, store="headwater.db", queue="orders", schema="customer STRING, amount DOUBLE")
"""

from headwater.pipeline.own import flow
from headwater.pipeline.reading import matches, payload, read, read_stream
from headwater.pipeline.session import start_session
from headwater.pipeline.source import HeadwaterDataSource, register

__all__ = ["HeadwaterDataSource", "flow", "matches", "payload", "read", "read_stream", "register", "start_session"]
