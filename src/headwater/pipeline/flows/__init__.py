"""The flows that need no code: archive, restore, rollup, load, export. Pure functions with an end on either side."""
