"""Which tests share a process where several run: those that would otherwise make the same thing once more in each.

A server, a browser or a database that a file makes for its tests takes seconds; dealt out one by one, its tests would
make it in every process. Groups are dealt out first, the largest one first of all, so none of them is left for the end.
"""

import pytest


def group_of(item: pytest.Item) -> str:
    """The name of its group; empty for a test that may run in any process."""
    if not isinstance(item, pytest.Function):
        return ""
    if "spark" in item.fixturenames:
        return "spark"
    used = item._fixtureinfo.name2fixturedefs.values()
    is_made_by_its_file = any(one.scope == "module" and one.baseid for named in used for one in named)
    return item.nodeid.partition("::")[0] if is_made_by_its_file else ""
