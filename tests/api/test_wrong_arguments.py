"""Whatever a public callable is given, it works, or raises an error of this library."""

from __future__ import annotations

import pytest

from tests.api.calls import World, foreign_outcome, public_calls
from tests.api.wrong_values import VALUES

CALLS = {call.name: call for call in public_calls()}


@pytest.fixture(scope="module")
def world():
    yield from World.open()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CALLS)
def test_a_callable_works_with_the_arguments_of_this_test(world, name):
    call = CALLS[name]

    assert foreign_outcome(call, world, call.arguments(world)) is None


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_of_every_kind_raise_our_errors(world, name):
    call = CALLS[name]

    wrong = {
        f"{name}({parameter.name}={what})": foreign_outcome(call, world, call.wrong(world, parameter, value))
        for parameter in call.parameters
        for what, value in VALUES.items()
        if not (parameter.name == "at_once" and callable(value))
    }

    assert {what: error for what, error in wrong.items() if error is not None} == {}


@pytest.mark.parametrize("name", CALLS)
def test_unknown_parameters_are_a_type_error(world, name):
    call = CALLS[name]

    with pytest.raises(TypeError):
        call(world, {**call.arguments(world), "unheard_of": 1})
