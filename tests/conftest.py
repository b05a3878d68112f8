"""What all tests share: how long hypothesis may search, and where a campaign is written down.

`ci` repeats the same search on every run, so that red means that something changed. `campaign` searches far, and
elsewhere each time: `HYPOTHESIS_PROFILE=campaign script/test tests/contracts/test_state_machine.py`.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.campaign_records import CampaignRecord

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


def pytest_configure(config: pytest.Config) -> None:
    """Keep what a campaign finds."""
    if config.getoption("--campaign"):
        config.pluginmanager.register(CampaignRecord(config.invocation_params.args))
