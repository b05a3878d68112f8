"""A real S3 server for the tests that need one, started once."""

import pytest

from tests.seaweed_server import SeaweedServer, server


@pytest.fixture(scope="session")
def seaweed() -> SeaweedServer:
    return server()
