import inspect

import pytest
from typer.testing import CliRunner

from spark_pages.cli.app import PANELS, app


def test_help_groups_the_verbs() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout

    places = [shown.index(f" {panel} ") for panel in PANELS]
    assert places == sorted(places)
    assert (
        shown.index(" Inspect ")
        < shown.index(" history ")
        < shown.index(" Maintain ")
        < shown.index(" vacuum ")
    )


def test_no_verb_stands_in_two_groups() -> None:
    verbs = [verb for group in PANELS.values() for verb in group]

    assert len(verbs) == len(set(verbs)) == len(app.registered_commands)


@pytest.mark.parametrize(
    "verb", ["info", "verify", "repair", "report", "vacuum", "doctor", "compact-log", "tags"]
)
def test_every_verb_calls_the_address_by_one_name(verb: str) -> None:
    assert "URL" in CliRunner().invoke(app, [verb, "--help"]).stdout
    assert "'URL'" in CliRunner().invoke(app, [verb]).stderr


def test_every_verb_of_an_address_takes_a_profile() -> None:
    options = {
        command.callback.__name__: inspect.signature(command.callback).parameters
        for command in app.registered_commands
        if command.callback is not None
    }

    assert {name for name, has in options.items() if "url" in has and "profile" not in has} == set()
    assert len([name for name, has in options.items() if "url" in has]) > 20


def test_every_option_of_restore_says_what_it_is() -> None:
    shown = CliRunner().invoke(app, ["restore", "--help"]).stdout

    lines = [line for line in shown.splitlines() if "--" in line]
    assert [line for line in lines if "As of" in line] == lines[:3]
