"""Whatever a public callable is given, it works, or raises an error of this library."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import pytest

import spark_pages as sp
from spark_pages import InvalidInputError, spark
from tests.api.calls import (
    FUNCTIONS,
    NEEDS_JVM,
    NOT_CALLED,
    RECEIVERS,
    World,
    foreign_outcome,
    public_calls,
)
from tests.api.reachable import reachable_classes, reachable_functions
from tests.api.wrong_values import VALUES
from tests.effort import some

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


@pytest.mark.sampled
@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_of_every_kind_raise_our_errors(world, name):
    call = CALLS[name]
    values = some(list(VALUES.items()), 4, list(CALLS).index(name))

    wrong = {
        f"{name}({parameter.name}={what})": foreign_outcome(call, world, call.wrong(world, parameter, value))
        for parameter in call.parameters
        for what, value in values
        if not (parameter.name == "at_once" and callable(value))
    }

    assert {what: error for what, error in wrong.items() if error is not None} == {}


@pytest.mark.parametrize("name", CALLS)
def test_unknown_parameters_are_a_type_error(world, name):
    call = CALLS[name]

    with pytest.raises(TypeError):
        call(world, {**call.arguments(world), "unheard_of": 1})


def test_every_public_function_is_called_or_listed_with_a_reason():
    assert reachable_functions() - set(FUNCTIONS) - set(NEEDS_JVM) == set()


def test_every_class_that_a_caller_can_get_hold_of_is_called_or_listed_with_a_reason():
    for module in walk_packages(
        sp.__path__, "spark_pages."
    ):  # classes are found in modules that are imported
        if not module.name.endswith("__main__"):
            import_module(module.name)
    found = {kind.__name__ for kind in reachable_classes()}

    assert found - {kind.__name__ for kind in RECEIVERS} == set(NOT_CALLED) & found
    assert set(NOT_CALLED) - found == set()


@pytest.mark.parametrize("name", ["app_name", "master", "delta", "source", "large"])
def test_a_session_is_refused_before_a_jvm_starts_where_an_argument_is_wrong(name):
    with pytest.raises(InvalidInputError, match=f"as {name}: expected"):
        spark.session(**{name: 5})
