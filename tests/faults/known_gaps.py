"""What is known to be wrong: tests that fail today, by the reason, with their cases. A line goes when the fault does; a
test that passes while it stands here is an error, so none is forgotten.
"""

KNOWN_GAPS: dict[str, dict[str, tuple[str, ...]]] = {
    "dead letters have no checksum, and a name that is no text is met where it cannot be called damage": {
        "test_bad_files.py::test_a_damaged_row_is_called_damage_and_harms_no_neighbour": ("dead letter", "name"),
    },
}
