"""Apps that people run and mount Headwater in, each served by `uvicorn tests.doors.hosts.NAME:app`."""

import os

STORE = os.environ.get("HOSTED_STORE", "")
PREFIX = "/queues"
