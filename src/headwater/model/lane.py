"""Where a record belongs, by names."""

import msgspec


class Lane(msgspec.Struct, frozen=True, gc=False):
    """The address of a partition: where a touched segment belongs."""

    database: str
    queue: str
    namespace: str
    task: str
    partition: str
