"""Headwater: one durable log in the database you have, and every way of drinking from it.

>>> import headwater
>>> async with headwater.open("headwater.db") as hw:
...     await hw.queue("orders").push({"id": 7}, partition="customer-42")
"""

from msgspec import Raw

from headwater.app import Headwater, asgi, connect
from headwater.app import open_headwater as open
from headwater.config import Config, Durability
from headwater.errors import HeadwaterError, LeaseLost, QueueFull, ResyncRequired, ServerError, StoreError
from headwater.log.job_operations import NewJob
from headwater.model.document import Document
from headwater.model.queue import QueueOptions
from headwater.services.consumption import Consumption
from headwater.services.database import Database
from headwater.services.documents import Collection, LiveChange
from headwater.services.messages import Message, Outgoing, Receipt
from headwater.services.queue import Queue
from headwater.services.transaction import Together

__version__ = "0.1.0"

__all__ = [
    "Collection",
    "Config",
    "Consumption",
    "Database",
    "Document",
    "Durability",
    "Headwater",
    "HeadwaterError",
    "LeaseLost",
    "LiveChange",
    "Message",
    "NewJob",
    "Outgoing",
    "Queue",
    "QueueFull",
    "QueueOptions",
    "Raw",
    "Receipt",
    "ResyncRequired",
    "ServerError",
    "StoreError",
    "Together",
    "__version__",
    "asgi",
    "connect",
    "open",
]
