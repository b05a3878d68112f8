"""Operations that come ready made, from a program that builds them itself: checked as those that our own calls make.

`admission.py` has the checks by type. Pushes and pops, which come too often for those, are looked at here as well, with
their records; and so is whatever a transaction holds.
"""

import msgspec

from headwater.config import Config
from headwater.errors import InvalidOption
from headwater.log.operations import Operation, Pop, Push, Transaction
from headwater.model.names import check_name
from headwater.model.record import encode_payload
from headwater.services.admission import admit
from headwater.services.records import check_record
from headwater.services.verbs import check_pop, check_push


def admit_ready(operation: Operation, config: Config) -> Operation:
    """The operation as it may be handed in; raises when it may not be."""
    if not isinstance(operation, Operation):
        raise InvalidOption(f"operations must be of headwater.log.operations; got {type(operation).__name__}")
    check_name("database", operation.database)
    if isinstance(operation, Transaction):
        steps = [admit_ready(step, config) for step in operation.operations]
        return msgspec.structs.replace(operation, operations=steps)
    if isinstance(operation, Push):
        check_push(operation, config)
        for record in operation.records:
            # Nobody has read it yet.
            encode_payload(msgspec.Raw(record.data), config.record_bytes_max)
            check_record(record, config.record_bytes_max)
    elif isinstance(operation, Pop):
        check_pop(operation, config)
    return admit(operation, config)
