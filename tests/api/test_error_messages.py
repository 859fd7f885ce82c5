"""Every error reads `Cannot <verb> <object>: <reason>.`, and has a hint with the next step."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import typer

import spark_pages as sp
import spark_pages.spark  # which hints name by its dots
from spark_pages.cli.app import app
from tests.api.raised_errors import raised_errors

MESSAGE_FROM_ELSEWHERE = {
    "cli/inspect.py:_expression": "the refusal of a filter, with more to its hint",
    "log/conflict_error.py:attach_conflicting_commit": "a conflict, with the commit that it is with",
    "spark/failures.py:_failure_of": "begins with Cannot, where Spark's own message does not",
    "transaction/ingest.py:check": "says which column does not fit",
    "transaction/record.py:_check_locations": "a refusal of a namespace, as a conflict",
    "transaction/staged_tables.py:find": "a table that is not there, as of the transaction",
    "spark/writing.py:_definition": "a table that is not there, with more to its hint",
}
"""Places whose message comes from another error that is one of these, by the reason."""

NO_HINT: dict[str, str] = {}
"""Places without a hint, by the reason."""

NO_HINT_OF = {
    "DamageError": "the boundary of the API adds `spark-pages verify`, where nothing narrower is known",
    "InternalError": "a bug of the library: its users can only report it",
}
"""Classes that need no hint, by the reason."""

NAMES_SOMETHING = re.compile(r"[`{='\"]|--|://|docs/|\b[A-Z]{3,}\b|\d")
"""A parameter, method, command or valid value: something to type."""

MOST_SHARED = 5

NAMED = {
    "directory": sp.PageDirectory,
    "snapshot": sp.Snapshot,
    "spark_pages": sp,
    "store": sp.Store,
    "table": sp.Table,
    "transaction": sp.Transaction,
    "txn": sp.Transaction,
}
"""What stands before a dot in hints, by what it is an object of."""

COMMAND = re.compile(r"`spark-pages ([a-z][\w-]*)")
COMMANDS = set(typer.main.get_command(app).commands)

ERRORS = raised_errors()


def test_every_message_says_what_cannot_be_done():
    wrong = [
        str(each)
        for each in ERRORS
        if not re.match(r"Cannot \S+ \S+", each.message) and each.place not in MESSAGE_FROM_ELSEWHERE
    ]

    assert wrong == []


def test_every_message_gives_a_reason_and_ends_as_a_sentence():
    wrong = [
        str(each)
        for each in ERRORS
        if each.place not in MESSAGE_FROM_ELSEWHERE and not re.search(r": .*[.}]$", each.message, re.DOTALL)
    ]

    assert wrong == []


def test_every_error_has_a_hint_or_a_listed_reason_for_its_absence():
    wrong = [
        str(each)
        for each in ERRORS
        if each.hint in (None, "{None}", "") and each.kind not in NO_HINT_OF and each.place not in NO_HINT
    ]

    assert wrong == []


def test_every_hint_names_a_parameter_method_command_or_value():
    wrong = [str(each) for each in ERRORS if each.hint is not None and not NAMES_SOMETHING.search(each.hint)]

    assert wrong == []


def test_no_hint_serves_for_more_than_five_errors():
    fixed = [each.hint for each in ERRORS if each.hint and not re.fullmatch(r"\{[^{}]*\}", each.hint)]
    shared = Counter(fixed)

    assert {hint: count for hint, count in shared.items() if count > MOST_SHARED} == {}


def test_every_method_and_command_that_a_hint_names_is_there():
    methods = [
        (str(each), of, name)
        for each in ERRORS
        for of, name in re.findall(rf"`({'|'.join(NAMED)})\.(\w+)", each.hint or "")
    ]
    commands = [(str(each), name) for each in ERRORS for name in COMMAND.findall(each.hint or "")]

    assert [each for each in methods if not hasattr(NAMED[each[1]], each[2])] == []
    assert [each for each in commands if each[1] not in COMMANDS] == []


def test_no_message_names_a_table_or_column_by_its_id():
    wrong = [
        str(each)
        for each in ERRORS
        if each.kind not in NO_HINT_OF
        and re.search(r"\b(table|column|field) \{[^}]*\b(table|field)_id\b", each.message)
    ]

    assert wrong == []


@pytest.mark.parametrize("listed", [MESSAGE_FROM_ELSEWHERE, NO_HINT])
def test_no_reason_is_listed_for_a_place_that_does_not_need_it(listed):
    places = {each.place for each in ERRORS}

    assert set(listed) - places == set()
