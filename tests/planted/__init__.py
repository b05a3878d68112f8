"""Known bugs, planted one at a time into a copy of the source: the suite must turn red for each.

A test that cannot fail is a defect. `python -m tests.planted` (or `script/test --planted`) shows which test catches
which bug, and ends with an error when one survives.
"""
