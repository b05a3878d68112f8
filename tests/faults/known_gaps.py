"""What is known to be wrong."""

KNOWN_GAPS: dict[str, tuple[str, ...]] = {}
