"""What a queue can be told: its options, their bounds and their defaults."""

from typing import Any

import msgspec

from headwater.errors import InvalidOption, StoreDamaged

DAY = 86_400
LANES_DEFAULT = 16
LANES_MAX = 256
YEARS_10 = 3_650 * DAY


class QueueOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How one queue behaves. A zero means "no limit" where a limit is meant, "at once" where a delay is."""

    lanes: int = LANES_DEFAULT
    """Over how many partitions messages are spread that name none: so many consumers can work on them at once."""
    lease_seconds: float = 300.0
    """How long a consumer may work on a batch before others get it."""
    retry_limit: int = 3
    """Deliveries after the first; then a failing record goes to the dead letters."""
    retry_delay_seconds: float = 1.0
    """How long a record waits before it is delivered again when it failed for the first time."""
    retry_factor: float = 2.0
    """By how much longer it waits each time it fails again; 1 is always the same."""
    retry_delay_max_seconds: float = 300.0
    """The longest that it waits, however often it failed."""
    retry_jitter: float = 0.1
    """The part of the wait that is left to chance, so that what failed together does not come back together."""
    dead_letters: bool = True
    """Keep records that failed for good; without it they are dropped, and counted."""
    priority: int = 0
    """Between queues popped together by namespace and task: the higher one first."""
    delay_seconds: float = 0.0
    """How old a record must be before it is delivered."""
    window_seconds: float = 0.0
    """Hold a partition until it has been quiet for this long (at most ten times this long), to get fuller batches."""
    retention_seconds: float = 0.0
    """Drop records of this age, consumed or not."""
    completed_retention_seconds: float = 7.0 * DAY
    """Drop records of this age once every group has passed them; those with transaction ids not before their window
    is over."""
    archive_required: bool = False
    """Drop nothing that `headwater pipeline run archive` has not put into an archive."""
    size_max: int = 0
    """Refuse pushes while this many records wait for the slowest group."""
    partitions_max: int = 0
    """Refuse pushes that would make more partitions than this."""
    deduplication_seconds: float = 300.0
    """How long a transaction id is remembered: at most as long as `retention_seconds` keeps its record."""
    compress_bytes_min: int = 65_536
    """Segments from this size on are compressed with zstd; 0 leaves all as they are."""
    encrypted: bool = False
    """Keep records encrypted with AES-256-GCM under the key from the environment."""

    def in_force(self) -> "QueueOptions":
        """The options as they hold together: what is dropped by age is not recognised for longer than that."""
        return msgspec.structs.replace(self, deduplication_seconds=self.recognised_seconds())

    def recognised_seconds(self) -> float:
        """For how long a transaction id is recognised."""
        window, age = self.deduplication_seconds, self.retention_seconds
        return min(window, age) if age else window


_bounds: dict[str, tuple[float, float]] = {
    "lanes": (1, LANES_MAX),
    "lease_seconds": (0.001, 7 * DAY),
    "retry_limit": (0, 1_000_000),
    "retry_delay_seconds": (0, 7 * DAY),
    "retry_factor": (1, 100),
    "retry_delay_max_seconds": (0, 7 * DAY),
    "retry_jitter": (0, 1),
    "priority": (-1_000_000, 1_000_000),
    "delay_seconds": (0, YEARS_10),
    "window_seconds": (0, DAY),
    "retention_seconds": (0, YEARS_10),
    "completed_retention_seconds": (0, YEARS_10),
    "size_max": (0, 2**53),
    "partitions_max": (0, 2**31),
    "deduplication_seconds": (0, 7 * DAY),
    "compress_bytes_min": (0, 2**31),
}

OPTION_NAMES = tuple(QueueOptions.__struct_fields__)
# What a consumer group may have otherwise than its queue.
GROUP_OPTION_NAMES = (
    "lease_seconds",
    "retry_limit",
    "retry_delay_seconds",
    "retry_factor",
    "retry_delay_max_seconds",
    "retry_jitter",
)


def merge_options(base: QueueOptions, changes: dict[str, object]) -> QueueOptions:
    """`base` with `changes` laid over it; an unknown name, a wrong type or a value out of bounds is an error."""
    unknown = sorted(set(changes) - set(OPTION_NAMES))
    if unknown:
        raise InvalidOption(f"no such queue option: {', '.join(unknown)}; there are {', '.join(OPTION_NAMES)}")
    try:
        merged = msgspec.convert({**msgspec.structs.asdict(base), **changes}, QueueOptions)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"queue option: {error}") from error
    for name, (low, high) in _bounds.items():
        value = getattr(merged, name)
        if not low <= value <= high:
            raise InvalidOption(f"queue option {name} must be between {low:g} and {high:g}; got {value!r}")
    if 0 < merged.partitions_max < merged.lanes:
        raise InvalidOption(
            f"queue option partitions_max must leave room for the {merged.lanes} lanes; got {merged.partitions_max}"
        )
    return merged


def merge_group_options(queue: QueueOptions, own: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    """What a group has otherwise than its queue, with `changes` laid over it; None goes back to the queue's value."""
    unknown = sorted(set(changes) - set(GROUP_OPTION_NAMES))
    if unknown:
        known = ", ".join(GROUP_OPTION_NAMES)
        raise InvalidOption(f"no such option of a consumer group: {', '.join(unknown)}; there are {known}")
    merged = {name: value for name, value in {**own, **changes}.items() if value is not None}
    merge_options(queue, merged)
    return merged


def retry_delay(options: QueueOptions, attempts: int, chance: float) -> float:
    """How many seconds a record waits that failed in this attempt, the first being 1.

    It grows by the factor up to the bound; `chance`, from 0 to below 1, says how much of the jitter is taken off.
    """
    longest = max(options.retry_delay_max_seconds, options.retry_delay_seconds)
    # Beyond this power every factor above 1 is past every bound, and far from what a float can hold.
    grown = options.retry_delay_seconds * options.retry_factor ** min(attempts - 1, 100)
    return min(grown, longest) * (1 - options.retry_jitter * chance)


def encode_options(options: QueueOptions) -> str:
    """The options as the store keeps them: only what differs from the defaults."""
    return msgspec.json.encode(options).decode()


def decode_group_options(text: str) -> dict[str, Any]:
    """What a group has otherwise than its queue, as the store kept it."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the options of a group cannot be read: {error}") from error


def decode_options(text: str) -> QueueOptions:
    """The options as the store kept them."""
    try:
        return msgspec.json.decode(text, type=QueueOptions)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the options of a queue cannot be read: {error}") from error
