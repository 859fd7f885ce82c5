import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import spark_pages
from spark_pages.cli.app import app

VERBS = (
    "demo", "create", "info", "tables", "history", "pages", "locate", "read", "checkpoint", "compact-log",
)  # fmt: skip


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def run_json(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


@pytest.fixture
def url(tmp_path: Path) -> str:
    address = str(tmp_path / "store")
    store = spark_pages.create(address)
    data = pa.table(
        {
            "id": pa.array(range(100), pa.int64()),
            "name": [f"n{i % 7}" if i % 10 else None for i in range(100)],
            "weight": [i / 4 if i != 3 else float("nan") for i in range(100)],
        }
    )
    with store.transaction("fill") as txn:
        txn.create_table("things", data.schema)
        txn.append("things", data)
    with store.transaction("correct") as txn:
        txn.update_rows("things", [5], {"id": [-5]})
    return address


def test_help_names_every_verb() -> None:
    result = run("--help")

    assert result.exit_code == 0
    assert [verb for verb in VERBS if verb not in result.stdout] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_takes_json(verb: str) -> None:
    result = run(verb, "--help")

    assert result.exit_code == 0
    assert "--json" in result.stdout


def test_a_store_that_was_created_has_no_tables(tmp_path: Path) -> None:
    made = run_json("create", tmp_path / "new")

    assert made["version"] == 0
    assert run_json("tables", tmp_path / "new") == {"version": 0, "tables": []}


def named(columns: list[dict[str, str]]) -> dict[str, str]:
    return {each["name"]: each["type"] for each in columns}


def test_info_counts_what_the_store_holds(url: str) -> None:
    facts = run_json("info", url)

    assert (facts["version"], facts["num_tables"], facts["num_rows"]) == (2, 1, 100)
    assert facts["num_pages"] >= 3


def test_tables_are_listed_as_of_a_version(url: str) -> None:
    now, first = run_json("tables", url), run_json("tables", url, "--version", 0)

    assert named(now["tables"][0]["columns"]) == {"id": "int64", "name": "string", "weight": "double"}
    assert first["tables"] == []


def test_history_is_newest_first_and_can_be_limited(url: str) -> None:
    every, last = run_json("history", url)["history"], run_json("history", url, "--limit", 1)["history"]

    assert [each["operation"] for each in every] == ["correct", "fill", "create store"]
    assert last == every[:1]


def test_pages_of_a_column_cover_its_rows(url: str) -> None:
    pages = run_json("pages", url, "things", "--column", "id")["pages"]

    assert sum(page["entry_count"] for page in pages) == 100
    assert {page["column"] for page in pages} == {"id"}
    assert all(len(page["page_id"]) == 16 for page in pages)


def test_locate_names_the_page_that_pages_lists(url: str) -> None:
    found = run_json("locate", url, "things", "id", 42)

    pages = run_json("pages", url, "things", "--column", "id")["pages"]
    page = pages[found["page_position"]]
    assert page["page_id"] == found["page_id"]
    assert page["first_row"] + found["row_in_page"] == 42


def test_read_gives_the_rows_asked_for_in_their_order(url: str) -> None:
    document = run_json("read", url, "things", "--rows", "7,5", "--columns", "name,id")

    assert document["rows"] == [{"name": "n0", "id": 7}, {"name": "n5", "id": -5}]
    assert named(document["columns"]) == {"name": "string", "id": "int64"}


def test_read_as_of_an_old_version_gives_the_old_value(url: str) -> None:
    document = run_json("read", url, "things", "--start", 5, "--stop", 6, "--version", 1)

    assert [row["id"] for row in document["rows"]] == [5]


def test_read_as_of_a_time_gives_the_version_of_that_time(url: str) -> None:
    written = run_json("history", url)["history"][1]["timestamp"]

    document = run_json("read", url, "things", "--rows", 5, "--timestamp", written)

    assert (document["version"], document["rows"][0]["id"]) == (1, 5)


@pytest.mark.parametrize(
    ("conditions", "ids"),
    [
        (["id >= 97"], [97, 98, 99]),
        (["id>=97", "id != 98"], [97, 99]),
        (["id in (1, 2)"], [1, 2]),
        (["name <> 'n6'", "id < 15", "id >= 12"], [12, 14]),
        (["name = 'n6' and id = 13"], [13]),
        (["id = 1 or id = 2", "id = 2 or id = 3"], [2]),
        (["id >= 98 -- and more"], [98, 99]),
        (["id >= 98 -- and more", "id < 99"], [98]),
        (["NAME in ('n1', 'n6')", "id between 8 and 14"], [8, 13]),
        (["name is null", "id < 15"], [0, 10]),
        (["name = 'n6'", "id < 14"], [6, 13]),
        (["weight > 24.6"], [99]),
    ],
)
def test_read_keeps_the_rows_where_every_filter_holds(
    url: str, conditions: list[str], ids: list[int]
) -> None:
    options = [part for each in conditions for part in ("--filter", each)]

    document = run_json("read", url, "things", *options)

    assert [row["id"] for row in document["rows"]] == ids


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("name = n6", "Cannot find column 'n6': things has none of that name."),
        ("name = n6", "Text is quoted: name = 'n6'"),
        ("id > 3 and name in (n1)", "Text is quoted: id > 3 and name in ('n1')"),
        ("name in n1,n6", "A filter is SQL, as behind WHERE: carrier in ('UA', 'DL')"),
        ("name in n1", "A filter is SQL, as behind WHERE: carrier in ('UA', 'DL')"),
        ("nam = 'n6'", "Did you mean 'name'?"),
    ],
)
def test_a_filter_that_is_no_sql_is_refused_and_the_right_form_shown(
    url: str, condition: str, told: str
) -> None:
    result = run("read", url, "things", "--filter", condition)

    assert result.exit_code in (2, 4)
    assert result.stdout == ""
    assert told in result.stderr


def test_read_says_that_it_shows_only_the_first_rows(url: str) -> None:
    limited, whole = run_json("read", url, "things"), run_json("read", url, "things", "--limit", 0)

    assert (len(limited["rows"]), limited["truncated"]) == (20, True)
    assert (len(whole["rows"]), whole["truncated"]) == (100, False)


def test_rows_that_are_not_there_are_named_as_they_were_asked_for(url: str) -> None:
    result = run("read", url, "things", "--start", 90, "--stop", 300)

    assert result.exit_code == 2
    assert "Cannot read rows [90, 300) of table 'things': it has 100 rows" in result.stderr


def test_a_value_that_is_no_number_is_null_in_json(url: str) -> None:
    document = run_json("read", url, "things", "--rows", "3")

    assert document["rows"][0]["weight"] is None


def test_without_json_data_goes_to_stdout_and_talk_to_stderr(url: str) -> None:
    result = run("read", url, "things", "--rows", "1,2", "--columns", "id")

    assert result.stdout == "id\n1\n2\n"
    assert "1 page" in result.stderr


def test_a_checkpoint_names_the_version_that_it_holds(url: str) -> None:
    made = run_json("checkpoint", url)

    assert made["version"] == 2
    assert run_json("info", url)["num_rows"] == 100


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (("tables", "{tmp}/nothing"), 4, "StoreNotFoundError"),
        (("read", "{url}", "thing"), 4, "TableNotFoundError"),
        (("read", "{url}", "things", "--columns", "nope"), 4, "ColumnNotFoundError"),
        (("tables", "{url}", "--version", "99"), 4, "VersionNotFoundError"),
        (("create", "{url}"), 1, "StoreExistsError"),
        (("locate", "{url}", "things", "id", "100"), 2, "RowOutOfRangeError"),
        (("read", "{url}", "things", "--filter", "nonsense"), 4, "ColumnNotFoundError"),
        (("read", "{url}", "things", "--filter", "id > many"), 4, "ColumnNotFoundError"),
        (("read", "{url}", "things", "--filter", "id > 1) or (id < 1"), 2, "InvalidInputError"),
        (("read", "{url}", "things", "--rows", "a"), 2, "InvalidInputError"),
        (("read", "{url}", "things", "--rows", "1", "--start", "1"), 2, "InvalidInputError"),
        (("info", "ftp://there"), 2, "InvalidInputError"),
        (("bogus",), 2, "UsageError"),
        (("read",), 2, "UsageError"),
        (("locate", "{url}", "things", "id", "x"), 2, "UsageError"),
    ],
)
def test_errors_have_a_kind_and_an_exit_code(
    url: str, tmp_path: Path, arguments: tuple[str, ...], code: int, kind: str
) -> None:
    given = [each.format(url=url, tmp=tmp_path) for each in arguments]

    as_json, as_str = run(*given, "--json"), run(*given)

    assert (as_json.exit_code, as_str.exit_code) == (code, code)
    error = json.loads(as_json.stdout)["error"]
    assert error["type"] == kind
    assert error["message"]
    assert as_str.stdout == ""
    assert "Traceback" not in as_str.stderr


def test_an_error_for_people_names_its_class_and_says_what_to_do(tmp_path: Path) -> None:
    result = run("info", tmp_path / "nothing")

    first, second = result.stderr.splitlines()[:2]
    assert first.startswith("error [StoreNotFoundError] ")
    assert second.startswith("  ")


def test_the_command_tells_its_release() -> None:
    result = run("--version")

    assert (result.exit_code, result.stdout) == (0, f"spark-pages {spark_pages.__version__}\n")


@pytest.mark.parametrize(
    "verb", [("info",), ("tables",), ("pages", "things"), ("locate", "things", "id", 5), ("read", "things")]
)
def test_what_is_looked_at_can_be_named_by_a_tag(url: str, verb: tuple[str, ...]) -> None:
    spark_pages.open(url).tag("filled", version=1)
    name, *rest = verb

    assert run_json(name, url, *rest, "--tag", "filled")["version"] == 1


@pytest.mark.parametrize("verb", ["verify", "repair"])
def test_a_store_that_is_not_there_is_told_with_what_to_do(tmp_path: Path, verb: str) -> None:
    result = run(verb, tmp_path / "nothing")

    assert (result.exit_code, len(result.stderr.splitlines())) == (4, 2)


@pytest.mark.parametrize(
    "verb",
    [("report", "{url}", "{long}"), ("export", "{url}", "--table", "things", "--output", "{file}/out")],
)
def test_a_place_that_cannot_be_written_to_is_named_with_what_to_do(
    url: str, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    file = tmp_path / "file"
    file.touch()
    told = {"url": url, "file": file, "long": tmp_path / ("x" * 254)}

    result = run(*(each.format(**told) for each in verb))

    assert result.exit_code == 2
    assert result.stderr.startswith("error [InvalidInputError] Cannot write ")
    assert result.stderr.splitlines()[1].startswith("  Name another ")


def test_changes_for_people_name_tables_and_columns_by_name_alone(url: str) -> None:
    shown = run("changes", url, "--start", 2).stdout.splitlines()

    assert shown == ["table\tcolumn\tchange\tfirst_row\tend_row", "things\tid\tupdated\t5\t6"]


def test_rows_are_claimed_listed_and_released(url: str) -> None:
    taken = run_json("claim", url, "things", "--owner", "me", "--column", "id", "--stop", 5)
    listed = run_json("claims", url)["claims"]
    refused = run("claim", url, "things", "--owner", "you", "--json")
    released = run_json("release", url, "me")

    assert taken == {"owner": "me", "num_claims": 1}
    assert [(each["table"], each["column"], each["end_row"], each["owner"]) for each in listed] == [
        ("things", "id", 5, "me")
    ]
    assert refused.exit_code != 0
    assert released == {"owner": "me", "num_claims": 1}
    assert run_json("claims", url) == {"claims": []}


def test_a_clock_that_is_right_is_not_reset(url: str) -> None:
    version = run_json("info", url)["version"]

    assert run_json("reset-clock", url) == {"version": version, "changed": False}


@pytest.mark.parametrize("verb", ["blame", "locate"])
def test_a_row_below_zero_is_no_option_but_a_row_that_is_not_there(url: str, verb: str) -> None:
    result = run(verb, url, "things", "id", "-1")

    assert result.exit_code != 0
    assert "Cannot find row -1" in result.output
