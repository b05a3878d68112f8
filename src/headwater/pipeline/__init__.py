"""The data pipeline on Spark: the log as a source and a sink, and the flows that need no code.

>>> from headwater.pipeline import start_session
>>> spark = start_session()
"""

from headwater.pipeline.session import start_session

__all__ = ["start_session"]
