"""Commands that are allowed by name: what fills their places, and which of them are no use."""

import json
from typing import Any

import pytest

from headwater.errors import ConfigError, InvalidInput
from headwater.model.command_template import CommandTemplate, Parameter, read_templates


def template(parameter: Parameter, argument: str = "{value}") -> CommandTemplate:
    return CommandTemplate(argv=("/bin/echo", argument), parameters={"value": parameter})


@pytest.mark.parametrize(
    ("parameter", "value", "filled"),
    [
        (Parameter(), "a b; $(reboot) `x` 'y'", "a b; $(reboot) `x` 'y'"),
        (Parameter(type="name"), "logs/2026-01", "logs/2026-01"),
        (Parameter(type="choice", choices=("a", "b")), "b", "b"),
        (Parameter(type="integer", minimum=-5), -5, "-5"),
        (Parameter(type="number", maximum=1), 0.25, "0.25"),
    ],
)
def test_a_value_fills_its_place_and_nothing_else(parameter: Parameter, value: Any, filled: str) -> None:
    assert template(parameter).fill({"value": value}) == ("/bin/echo", filled)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (Parameter(), "-rf"),
        (Parameter(type="integer"), -5),
        (Parameter(type="number"), -0.5),
        (Parameter(type="integer", maximum=10), -1),
        (Parameter(type="integer", minimum=0), -1),
        (Parameter(), "a\nb"),
        (Parameter(), "a\x00b"),
        (Parameter(), 1),
        (Parameter(length_max=3), "abcd"),
        (Parameter(type="name"), "a b"),
        (Parameter(type="name"), "-o"),
        (Parameter(type="choice", choices=("a",)), "b"),
        (Parameter(type="integer"), True),
        (Parameter(type="integer"), 1.5),
        (Parameter(type="integer", minimum=1), 0),
        (Parameter(type="number"), float("nan")),
        (Parameter(), None),
    ],
)
def test_a_value_that_does_not_fit_is_refused(parameter: Parameter, value: Any) -> None:
    with pytest.raises(InvalidInput, match="value"):
        template(parameter).fill({"value": value})


def test_a_place_in_the_middle_of_an_argument_may_hold_anything_of_its_type() -> None:
    assert template(Parameter(), "--name={value}").fill({"value": "-x"})[1] == "--name=-x"


def test_values_are_not_looked_through_for_places() -> None:
    made = CommandTemplate(argv=("x", "{a}", "{b}"), parameters={"a": Parameter(), "b": Parameter(default="z")})
    assert made.fill({"a": "{b}"}) == ("x", "{b}", "z")


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"a": {}},
        {"a": {"argv": []}},
        {"a": {"argv": "rm"}},
        {"a": {"argv": ["{program}"], "parameters": {"program": {}}}},
        {"a": {"argv": ["x", "{y}"]}},
        {"a": {"argv": ["x"], "parameters": {"y": {}}}},
        {"a": {"argv": ["x", "{y}"], "parameters": {"y": {"type": "choice"}}}},
        {"a": {"argv": ["x", "{y}"], "parameters": {"y": {"type": "regex"}}}},
        {"a": {"argv": ["x"], "shell": True}},
        {"a": {"argv": ["x", "{Name}"]}},
        {"a": {"argv": ["x", "{y}", "--to={Y}"], "parameters": {"y": {}}}},
        {"a": {"argv": ["x", "{ y }", "{y}"], "parameters": {"y": {}}}},
        {"a": {"argv": ["x", "{file-name}"]}},
        {"a": {"argv": ["x", "{0}"]}},
        {"a b": {"argv": ["x"]}},
    ],
)
def test_templates_that_can_be_no_use_are_refused_when_they_are_read(document: object) -> None:
    with pytest.raises(ConfigError):
        read_templates(json.dumps(document).encode())


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ConfigError, match="JSON"):
        read_templates(b"\xff{")


@pytest.mark.parametrize("argument", ["{}", "{print $1}", "a{2,3}", '{"a": 1}', "}{"])
def test_braces_of_the_program_itself_stay_as_they_are(argument: str) -> None:
    made = read_templates(json.dumps({"a": {"argv": ["x", argument]}}).encode())
    assert made["a"].fill({}) == ("x", argument)
