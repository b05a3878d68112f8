"""Takes jobs back from workers that were not heard of for longer than their lease, though nobody claims."""

from headwater.housekeeping.periodic import Periodic
from headwater.log.job_operations import Rescue


class JobRescuer(Periodic):
    """A claim rescues by itself; this one does it where no worker is left to claim."""

    name = "job-rescuer"

    async def run(self) -> int:
        """How many jobs were taken back."""
        return len((await self._submit(Rescue())).ids)
