"""What people are shown of a store's address: where it is, and nothing that is a secret."""

import pytest

from headwater.clock import SystemClock
from headwater.config import load_config
from headwater.errors import ConfigError
from headwater.stores.open import has_password, open_store, shown


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("headwater.db", "headwater.db"),
        ("/data/a@b:c.db", "/data/a@b:c.db"),
        ("sqlite:////data/log.db", "sqlite:////data/log.db"),
        ("file:///data/log.sqlite?lease_seconds=0", "file:///data/log.sqlite?lease_seconds=0"),
        ("postgresql://ada:canary@db:5432/shop?schema=s", "postgresql://ada@db:5432/shop?schema=s"),
        ("postgresql://ada:can:ary%40@db/shop", "postgresql://ada@db/shop"),
        ("postgresql://db/shop?password=canary&schema=s", "postgresql://db/shop?schema=s"),
        ("postgresql://db/shop?ssl%70assword=canary", "postgresql://db/shop"),
        ("s3://bucket/log.sqlite?secret_key=canary&region=eu", "s3://bucket/log.sqlite?region=eu"),
        ("https://ada:canary@log.example.org", "https://ada@log.example.org"),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, seen: str) -> None:
    assert shown(address) == seen


@pytest.mark.parametrize(
    ("address", "has"),
    [
        ("/data/a:b@c.db", False),
        ("sqlite:////data/log.db", False),
        ("file:///data/log.sqlite?password=none", False),
        ("postgresql://ada@db:5432/shop?schema=s&sslkey=/data/client.key&passfile=/data/pass", False),
        ("postgresql://ada:canary@db-1,db-2/shop", True),
        ("postgresql://db/shop?ssl%70assword=canary", True),
        ("s3://bucket/log.sqlite?secret_key=canary", True),
        ("https://ada:canary@log.example.org", True),
    ],
)
def test_a_password_in_an_address_is_found(address: str, has: bool) -> None:
    assert has_password(address) is has


@pytest.mark.parametrize("address", ["postgresql://ada:canary@db/shop?scheme=s", "postgresql://ada:canary@[db/shop"])
def test_an_address_that_libpq_cannot_read_is_told_before_anybody_is_asked(address: str) -> None:
    with pytest.raises(ConfigError) as told:
        open_store(address, load_config({}), SystemClock())
    assert "canary" not in str(told.value)


@pytest.mark.parametrize("address", ["file:log.sqlite", "s3:log.sqlite", "sqlite:/log.db", "postgresql:shop"])
def test_a_scheme_without_its_slashes_is_no_name_of_a_file(address: str) -> None:
    with pytest.raises(ConfigError, match="with two slashes"):
        open_store(address, load_config({}), SystemClock())
    assert open_store(f"./{address}", load_config({}), SystemClock()).traits.name == "sqlite"
