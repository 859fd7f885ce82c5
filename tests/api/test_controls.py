"""Terminal escapes, NUL and marks of direction in names and values are shown escaped."""

from __future__ import annotations

import contextlib
import json
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import spark_pages as sp
from spark_pages.cli import output
from spark_pages.cli.app import app
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.printable import escape_controls, escape_controls_in_json

EVIL = "a\x1b]0;b\x07\x9b31m\u202ec\u2066d\u200fe"
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    url = str(tmp_path_factory.mktemp("controls") / "store")
    store = sp.create(url)
    with store.transaction(operation=EVIL, app_id=EVIL, app_version=1, parameters={EVIL: EVIL}) as txn:
        txn.create_table(EVIL, pa.schema([(EVIL, pa.string()), ("n", pa.int64())]))
        txn.append(EVIL, {EVIL: [EVIL, "b"], "n": [1, 2]})
        txn.set_comment(EVIL, EVIL)
        txn.set_properties({EVIL: EVIL})
    store.tag("t", 1)
    return url


def shown(store):
    """What a user is shown of objects."""
    snapshot = store.snapshot()
    table = snapshot.table(EVIL)
    transaction = store.transaction(operation=EVIL)
    objects = [
        store, snapshot, table, table.directory, table.explain(filter=[(EVIL, "==", EVIL)]), transaction,
        store.blame(EVIL, EVIL, 0), store.verify("all"), store.repair_plan(), store.vacuum_plan(),
        table.aggregate(EVIL), table.page_options, sp.typed(EVIL, EVIL).name.encode(), store.history,
        *snapshot.namespaces(), table.definition.name.encode(),
    ]  # fmt: skip
    return "\n".join(f"{each!r}\n{each}" for each in objects)


def test_no_object_shows_controls(url):
    assert CONTROLS.findall(shown(sp.open(url))) == []


def refusal(call):
    with pytest.raises(SparkPagesError) as refused:
        call()
    return f"{refused.value}\n{refused.value!r}\n{refused.value.hint}"


REFUSED = {
    "a table": lambda s: s.snapshot().table(EVIL + "x"),
    "a column": lambda s: s.snapshot().table(EVIL).read(["m"]),
    "a column in SQL": lambda s: s.sql('SELECT "m" FROM "' + EVIL + '"'),  # noqa: S608 - it is about names
    "a filter": lambda s: s.snapshot().table(EVIL).read(filter=[(EVIL, "==", 1)]),
    "a row": lambda s: s.snapshot().table(EVIL).take([9]),
    "a tag": lambda s: s.tag(EVIL),
    "values": lambda s: s.transaction().append(EVIL, {EVIL: [1], "n": [EVIL]}),
    "a table that is there": lambda s: s.transaction().create_table(EVIL, pa.schema([("n", pa.int64())])),
    "a page": lambda s: s.snapshot().table(EVIL).directory.lookup(7),
}


@pytest.mark.parametrize("what", REFUSED)
def test_no_error_shows_controls(url, what):
    store = sp.open(url)

    assert CONTROLS.findall(refusal(lambda: REFUSED[what](store))) == []


SELECT = f'SELECT * FROM "{EVIL}"'  # noqa: S608 - the same
VERBS = {
    "info": (), "tables": (), "history": (), "leases": (), "tags": (), "verify": (), "repair": (),
    "vacuum": (),
    "changes": ("--from", "0"), "pages": (EVIL,), "read": (EVIL,), "locate": (EVIL, EVIL, "0"),
    "blame": (EVIL, EVIL, "0"), "sql": (SELECT,), "read nothing": (EVIL + "x",),
    "read a column": (EVIL, "--columns", "m"), "compact-pages": ("--dry-run",),
}  # fmt: skip


def run(capsys, *arguments):
    with contextlib.suppress(SystemExit):
        app(list(arguments))
    told = capsys.readouterr()
    return told.out, told.err


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_no_verb_writes_controls(url, capsys, verb, form):
    out, err = run(capsys, verb.split()[0], url, *VERBS[verb], *form)

    assert CONTROLS.findall(out + err) == []
    assert out + err


@pytest.mark.parametrize("verb", ["tables", "read", "history"])
def test_no_verb_writes_controls_to_a_terminal(url, capsys, monkeypatch, verb):
    plain = lambda **more: Console(**more, force_terminal=True, no_color=True, width=200)  # noqa: E731
    monkeypatch.setattr(output, "Console", plain)

    out, err = run(capsys, verb, url, *VERBS[verb])

    bare = re.sub("\x1b\\[[0-9;]*m", "", out + err)  # what rich writes itself
    assert CONTROLS.findall(bare) == []
    assert "\\x1b]0;b" in bare


def test_json_means_what_is_stored(url, capsys):
    out, _ = run(capsys, "read", url, EVIL, "--json")

    assert json.loads(out)["rows"][0] == {EVIL: EVIL, "n": 1}


@given(st.text(st.characters()))
def test_escaped_text_is_encodable_and_holds_no_controls(text):
    escaped = escape_controls(text)

    assert CONTROLS.findall(escaped) == []
    assert escaped.encode().decode() == escaped


@given(
    st.recursive(st.text(st.characters()), lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts))
)
def test_escaped_json_means_the_same(document):
    text = json.dumps(document, ensure_ascii=False)

    assert CONTROLS.findall(escape_controls_in_json(text)) == []
    assert json.loads(escape_controls_in_json(text)) == document


HALF = "\ud800"
TEXTS = {
    "a table": lambda t: t.create_table(HALF, pa.schema([("n", pa.int64())])),
    "a namespace": lambda t: t.create_namespace(HALF),
    "a type": lambda t: t.create_type(HALF, pa.int64()),
    "a new name": lambda t: t.rename_column(EVIL, "n", HALF),
    "a property": lambda t: t.set_properties({"x": HALF}),
    "the name of a property": lambda t: t.set_table_properties(EVIL, {HALF: "x"}),
    "a property of a column": lambda t: t.set_column_properties(EVIL, "n", {"x": HALF}),
    "a comment": lambda t: t.set_comment(EVIL, HALF),
    "a comment of a column": lambda t: t.set_comment(EVIL, HALF, "n"),
    "a value": lambda t: t.append(EVIL, {EVIL: [HALF], "n": [1]}),
    "the name of a value": lambda t: t.append(EVIL, {HALF: ["x"], "n": [1]}),
    "another value": lambda t: t.update_rows(EVIL, [0], {EVIL: [HALF]}),
    "a default": lambda t: t.add_column(EVIL, pa.field("m", pa.string()), HALF),
    "a check": lambda t: t.add_constraint(EVIL, "c", check=f"n > '{HALF}'"),
    "the name of a constraint": lambda t: t.add_constraint(EVIL, HALF, check="n > 0"),
    "metadata of pages": lambda t: t.append(EVIL, {EVIL: ["x"], "n": [1]}, page_metadata={"n": {"x": HALF}}),
}
OF_STORE = {
    "an operation": lambda s: s.transaction(operation=HALF),
    "a parameter": lambda s: s.transaction(parameters={"x": HALF}),
    "an application": lambda s: s.transaction(app_id=HALF, app_version=1),
    "a tag": lambda s: s.tag(HALF),
    "a property": lambda _: sp.create("memory://half", properties={"x": HALF}),
    "SQL": lambda s: s.sql(f"SELECT '{HALF}'"),
    "a filter": lambda s: s.snapshot().table(EVIL).read(filter=f"n = '{HALF}'"),
    "a filter in a list": lambda s: s.snapshot().table(EVIL).read(filter=[(EVIL, "==", HALF)]),
    "a column of a filter": lambda s: s.snapshot().table(EVIL).read(filter=[(HALF, "==", 1)]),
    "a column": lambda s: s.snapshot().table(EVIL).read([HALF]),
    "a table": lambda s: s.snapshot().table(HALF),
}


@pytest.mark.parametrize("what", TEXTS)
def test_text_that_utf8_cannot_express_is_not_staged(url, what):
    txn = sp.open(url).transaction()

    with pytest.raises((InvalidInputError, sp.NotFoundError)):
        TEXTS[what](txn)

    assert txn.commit() == sp.open(url).snapshot().version


@pytest.mark.parametrize("what", OF_STORE)
def test_text_that_utf8_cannot_express_is_refused(url, what):
    with pytest.raises((InvalidInputError, sp.NotFoundError)):
        OF_STORE[what](sp.open(url))
