"""A broker that leaves a store as a kill would: so many entries behind its base.

python -m benchmarks.bucket_left ADDRESS ENTRIES
"""

import asyncio
import os
import sys

import headwater


async def main() -> None:
    hw = headwater.open(sys.argv[1], housekeeping=False)
    await hw.start()
    for _ in range(int(sys.argv[2]) // 4):
        # Four PUTs are under way together.
        for number in range(4):
            await asyncio.sleep(0)
            last = asyncio.ensure_future(hw.queue("orders").push(number))
        await last
    os._exit(0)


asyncio.run(main())
