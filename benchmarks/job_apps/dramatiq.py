"""dramatiq's actors, over Redis."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks import job_apps

broker = RedisBroker(url=job_apps.address())
dramatiq.set_broker(broker)
mark = dramatiq.actor(job_apps.mark, broker=broker)
