"""A wrong setting, option or file is told with what it may be and where it was looked for."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import headwater.sync
from headwater.cli.certificates import make_tls
from headwater.config import Config, load_config
from headwater.doors.access.settings import AccessSettings, load_access
from headwater.errors import ConfigError
from tests.certificates import make_certificate
from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


WRONG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"durability": "perhaps"}, ("durability", "synced, written or memory", "'perhaps'")),
    ({"wakeup": "magic"}, ("wakeup", "auto, inotify or data_version", "'magic'")),
    ({"batch_max": "many"}, ("batch_max", "a whole number", "'many'")),
    ({"wait_seconds_max": "long"}, ("wait_seconds_max", "a number", "'long'")),
    ({"housekeeping": "perhaps"}, ("housekeeping", "true or false", "'perhaps'")),
    ({"encryption_key": "short"}, ("encryption_key", "64 hexadecimal digits")),
]


@pytest.mark.parametrize(("settings", "named"), WRONG, ids=lambda value: next(iter(value)))
def test_a_wrong_setting_names_itself_what_it_may_be_and_what_came(
    settings: dict[str, Any], named: tuple[str, ...]
) -> None:
    [(name, value)] = settings.items()
    with pytest.raises(ConfigError) as by_name:
        load_config({}, **settings)
    with pytest.raises(ConfigError) as by_variable:
        load_config({f"HEADWATER_{name.upper()}": str(value)})
    for refused in (by_name, by_variable):
        assert all(text in str(refused.value) for text in named)


WRONG_ACCESS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"auth": "basic"}, ("auth must be none, token, jwt, or token,jwt", "'basic'")),
    ({"auth": "token,basic"}, ("auth must be none, token, jwt, or token,jwt", "'token,basic'")),
    ({"auth": 7}, ("auth must be none, token, jwt, or token,jwt", "7")),
    ({"jwt_algorithms": "none"}, ("jwt_algorithms", "HS256, RS256 or EdDSA", "none")),
    ({"requests_per_second": "few"}, ("requests_per_second", "a number", "'few'")),
    ({"allowed_origins": "app.example.org"}, ("allowed_origins", "https://app.example.org")),
    ({"colour": "red"}, ("colour", "auth", "jwt_issuer")),
]


@pytest.mark.parametrize(("settings", "named"), WRONG_ACCESS, ids=lambda value: str(value)[:30])
def test_a_wrong_setting_of_access_names_its_choices(settings: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        load_access({}, **settings)
    assert all(text in str(refused.value) for text in named)


@pytest.mark.parametrize("kind", [Config, AccessSettings])
def test_no_wrong_setting_is_told_in_the_words_of_a_decoder(kind: type) -> None:
    """Every setting of every kind, with a value that none of them can be."""
    load = load_config if kind is Config else load_access
    for name in kind.__struct_fields__:  # type: ignore[attr-defined]
        with pytest.raises(ConfigError) as refused:
            load({}, **{name: {"a": object}})
        assert str(refused.value).startswith(name), name
        assert "`$" not in str(refused.value)


@pytest.mark.parametrize("name", ["encryption_key", "jwt_secret"])
def test_a_secret_that_is_wrong_is_not_shown(name: str) -> None:
    load = load_config if name == "encryption_key" else load_access
    with pytest.raises(ConfigError) as refused:
        load({}, **{name: ["s3cret"]})
    assert "s3cret" not in str(refused.value)


def test_a_certificate_that_cannot_be_used_names_its_file(tmp_path: Path) -> None:
    good, other = make_certificate(tmp_path, "127.0.0.1"), tmp_path / "other"
    other.mkdir()
    foreign = make_certificate(other, "127.0.0.2")
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("no certificate")
    table = [
        (str(missing), "", [f"--certificate {missing}", "No such file"]),
        (str(good.shown), str(missing), [f"--certificate-key {missing}", "No such file"]),
        (str(tmp_path), "", [f"--certificate {tmp_path}", "directory"]),
        (str(text), "", [f"--certificate {text}", "PEM"]),
        (str(good.shown), "", [f"--certificate {good.shown}", "no --certificate-key"]),
        (str(good.shown), str(foreign.kept), [str(good.shown), f"--certificate-key {foreign.kept}"]),
    ]
    for certificate, key, named in table:
        with pytest.raises(ConfigError) as refused:
            make_tls(certificate, key)
        assert all(part in str(refused.value) for part in named), (named, str(refused.value))


def test_the_command_line_names_them_too(program: Program) -> None:
    refused = program.run("serve", "--auth", "basic", "--json")
    assert refused.code != 0
    assert "none, token, jwt" in refused.error()["message"]
    refused = program.run("serve", "--certificate", "nowhere.pem", "--json")
    assert "--certificate nowhere.pem" in refused.error()["message"]


# ── files of other programs ──


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE shop_orders (id INTEGER)")
    connection.execute("INSERT INTO shop_orders VALUES (7)")
    connection.commit()
    connection.close()
    return path


def test_a_foreign_file_is_adopted_when_that_is_asked_for(program: Program, shop: Path) -> None:
    refused = program.run("push", "orders", "1", "--store", str(shop), "--json")
    assert refused.error()["code"] == "store_foreign"
    assert "--adopt" in refused.error()["message"]
    assert program.run("push", "orders", "1", "--store", str(shop), "--adopt").code == 0
    assert program.run("push", "orders", "2", "--store", str(shop)).code == 0, "it is needed once"
    connection = sqlite3.connect(f"file:{shop}?mode=ro", uri=True)
    assert connection.execute("SELECT id FROM shop_orders").fetchall() == [(7,)]
    connection.close()
    with headwater.sync.open(str(shop)) as hw:
        assert sorted(message.payload for message in hw.queue("orders").pop(batch=10)) == [1, 2]


def test_adopting_is_for_stores(program: Program) -> None:
    refused = program.run("queues", "--server", "http://127.0.0.1:1", "--adopt")
    assert refused.code == 2
    assert "--adopt is for stores" in refused.err
