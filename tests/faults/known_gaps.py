"""What is known to be wrong: tests that fail today, by the reason, with their cases. A line goes when the fault does; a
test that passes while it stands here is an error, so none is forgotten.
"""

KNOWN_GAPS: dict[str, dict[str, tuple[str, ...]]] = {}
