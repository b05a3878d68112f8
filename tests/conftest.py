"""What all tests share: how long hypothesis may search, where a campaign is written down, that none leaves anything.

`ci` repeats the same search on every run, so that red means that something changed. `campaign` searches far, and
elsewhere each time: `HYPOTHESIS_PROFILE=campaign script/test tests/contracts/test_state_machine.py`.
"""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.campaign_records import CampaignRecord
from tests.groups import group_of
from tests.leftovers import Snapshot, make_what_is_made_once

settings.register_profile(
    "ci",
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "campaign",
    max_examples=5_000,
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Here because pytest reads this file before its arguments. `--campaign`: tests/faults at full numbers."""
    parser.addoption("--campaign", action="store_true", help="break things as often as a release asks for")
    parser.addoption("--rounds", type=int, help="so often instead, in tests that break things many times themselves")


def pytest_configure(config: pytest.Config) -> None:
    """Make the process the same however it was started, and keep what a campaign finds."""
    hear_signals()
    make_what_is_made_once()
    # Without pytest-xdist nobody else knows it.
    config.addinivalue_line("markers", "xdist_group(name): tests that share a process")
    if config.getoption("--campaign"):
        config.pluginmanager.register(CampaignRecord(config.invocation_params.args))


def hear_signals() -> None:
    """A shell starts what runs in the background deaf to Ctrl-C, and nohup to hanging up; children inherit it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what belongs together in one process. First of all, because pytest-xdist reads the marks next."""
    for item in items:
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))


def shares_something(item: pytest.Item) -> bool:
    """Whether something that a folder or a file makes for several tests, such as a server, works beside this test: it
    uses it, or one before it did and others will."""
    its_own = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    made = item.session._fixturemanager._arg2fixturedefs.values()
    return any(is_shared(one) for named in its_own for one in named) or any(
        is_shared(one) and one.cached_result is not None for named in made for one in named
    )


def is_shared(fixture: pytest.FixtureDef[object]) -> bool:
    return fixture.scope != "function" and bool(fixture.baseid)


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that changes the process for the tests after it. The first fixture, so the last that ends."""
    snapshot = Snapshot(shares=shares_something(request.node))
    yield
    if not os.environ.get("PYTEST_CURRENT_TEST", "").endswith("(teardown)"):
        # Somebody ended the whole run in the middle of this test.
        return
    if leftovers := snapshot.leftovers():
        snapshot.put_back(leftovers)
        told = "\n".join(f"- {name}: {what}" for name, what in leftovers.items())
        pytest.fail(f"this test left something behind in its process:\n{told}", pytrace=False)
