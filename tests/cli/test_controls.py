"""Every verb of the command line escapes terminal escapes, NUL and marks of direction, wherever it prints."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from rich.console import Console

import spark_pages as sp
from spark_pages.cli import output
from spark_pages.cli.app import app

EVIL = "a\x1b]0;b\x07\x9b31m\u202ec\u2066d\u200fe"
NAME = f"ns.{EVIL}"
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
OF_RICH = re.compile("\x1b\\[[0-9;]*m")
"""What rich writes itself, to a terminal."""

SQL = f'SELECT * FROM ns."{EVIL}"'  # noqa: S608 - it is about names
VERBS: dict[str, tuple[str, ...]] = {
    "create": (), "info": (), "tables": (), "history": (), "pages": (NAME,), "locate": (NAME, EVIL, "0"),
    "read": (NAME,), "head": (NAME,), "schema": (NAME,),
    "sql": (SQL,), "changes": ("--from", "0"), "blame": (NAME, EVIL, "0"), "tags": (),
    "leases": (), "claims": (), "report": (), "tag": (EVIL,), "untag": (EVIL,), "restore": ("--tag", EVIL),
    "reset-clock": (), "claim": (NAME, "--owner", EVIL + "x"), "release": (EVIL,), "checkpoint": (),
    "compact-log": (), "compact-pages": (), "vacuum": (), "verify": (), "repair": (), "doctor": (),
    "export": ("--table", NAME, "--output"), "ingest": ("--table", NAME, "--path", EVIL + ".csv"),
    "delete-rows": ("--table", NAME, "--path", EVIL + ".csv"),
    "delete": (NAME, "--where", f"\"{EVIL}\" = 'x'"), "erase": (NAME, "--where", f"\"{EVIL}\" = 'x'"),
}  # fmt: skip
NOT_RUN = {"demo", "serve", "publish-delta", "reconstruct-snapshot"}
"""They take no name of a user, need Java or do not end; what they print goes the same ways."""

WIDTHS = [
    pytest.param(None, id="pipe"), pytest.param(44, id="narrow terminal"),
    pytest.param(300, id="wide terminal", marks=pytest.mark.slow),
]  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("controls") / "store")
    store = sp.create(url, properties={EVIL: EVIL})
    record = pa.struct([(EVIL, pa.string())])
    schema = pa.schema([(EVIL, pa.string()), ("s", record), ("m", pa.map_(pa.string(), pa.string()))])
    with store.transaction(operation=EVIL, app_id=EVIL, app_version=1, parameters={EVIL: EVIL}) as txn:
        txn.create_namespace("ns", properties={EVIL: EVIL})
        txn.create_table(NAME, schema, properties={EVIL: EVIL})
        txn.append(NAME, pa.table({EVIL: [EVIL], "s": [{EVIL: EVIL}], "m": [[(EVIL, EVIL)]]}, schema=schema))
        txn.set_comment(NAME, EVIL)
    store.claim(NAME, owner=EVIL)
    return url


@pytest.fixture
def run(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def run(verb: str, width: int | None, *more: str) -> str:
        if width is not None:
            terminal = lambda **given: Console(**given, force_terminal=True, no_color=True, width=width)  # noqa: E731
            monkeypatch.setattr(output, "Console", terminal)
        target = ("out" + EVIL,) if verb == "export" else ()
        with contextlib.suppress(SystemExit):
            app([verb, url, *VERBS[verb], *target, *more])
        told = capsys.readouterr()
        return OF_RICH.sub("", told.out + told.err)

    return run


def test_every_verb_is_tried():
    commands = typer.main.get_command(app).commands

    assert VERBS.keys() | NOT_RUN == commands.keys()


QUICK = [verb for verb in VERBS if verb != "doctor"]
ALL = [*QUICK, pytest.param("doctor", marks=pytest.mark.slow)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verb", ALL)
def test_no_verb_writes_controls(run, verb, width):
    text = run(verb, width)

    assert CONTROLS.findall(text) == []
    assert text


@pytest.mark.parametrize("verb", ALL)
def test_no_verb_writes_controls_into_json(run, verb):
    assert CONTROLS.findall(run(verb, None, "--json")) == []


@pytest.mark.parametrize("verb", ["info", "ingest", "restore"])
def test_no_verb_writes_the_controls_of_arguments(run, verb):
    assert CONTROLS.findall(run(verb, None, f"--{EVIL}", EVIL)) == []
