"""A module whose import never ends."""

import time

time.sleep(1_000_000)
