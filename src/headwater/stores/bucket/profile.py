"""Credentials of a profile in the files that Amazon's tools share."""

import configparser
import os
from collections.abc import Mapping

from headwater.errors import ConfigError

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def read_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """The credentials and the region of the profile that `AWS_PROFILE` names."""
    name = environment.get("AWS_PROFILE") or "default"
    credentials = _section(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials", name)
    settings = _section(environment, "AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}")
    found = {**settings, **credentials}
    if not all(found.get(key) for key in _KEYS[:2]):
        raise ConfigError(
            f"AWS_PROFILE names {name!r:.80}, which has no aws_access_key_id and aws_secret_access_key in "
            "~/.aws/credentials; profiles that sign in or assume a role are not read: "
            "`aws configure export-credentials` turns one into variables"
        )
    kept = {key: found[key] for key in _KEYS if found.get(key)}
    region = environment.get("AWS_REGION") or found.get("region", "")
    return {**kept, "aws_region": region} if region else kept


def _section(environment: Mapping[str, str], variable: str, file: str, section: str) -> dict[str, str]:
    path = environment.get(variable) or os.path.join(os.path.expanduser("~"), ".aws", file)
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except configparser.Error as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}") from None
    return dict(parser[section]) if parser.has_section(section) else {}
