"""What a person sees on a terminal."""

from datetime import UTC, datetime

import pytest

from spark_pages.cli import output


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")


NAMES = [f"column_{index}" for index in range(12)]


def lines(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    said = capsys.readouterr()
    return said.out.splitlines(), said.err


def test_columns_that_do_not_fit_are_named_and_not_squeezed(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    output.print_rows("Rows", NAMES, [list(range(12))] * 9)

    shown, told = lines(capsys)
    assert any("column_0" in line and "column_5" in line for line in shown)
    assert len(shown) < 16
    assert "not shown for want of room: column_7, " in told
    assert "column_11" in told


def test_few_rows_of_many_columns_are_turned(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows("Rows", NAMES, [list(range(12)), list(range(100, 112))])

    shown, told = lines(capsys)
    assert [line.split() for line in shown if "column_11" in line] == [["column_11", "11", "111"]]
    assert told == ""


def test_columns_that_fit_stay_as_they_are(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows("Rows", NAMES[:3], [[1, 2, 3]])

    shown, _ = lines(capsys)
    assert [line.split() for line in shown if "1" in line][-1] == ["1", "2", "3"]


def test_a_sentence_is_told_whole_and_a_key_loses_its_middle(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "Nothing names this object, and no writer is at work that could need it any more."

    output.print_rows("Faults", ["what", "key"], [[sentence, "pages/" + "0" * 60]])

    shown, _ = lines(capsys)
    text = " ".join(" ".join(shown).split())
    assert "…" in text
    assert [word for word in sentence.split() if word not in text] == []


def test_a_time_says_that_it_is_in_utc(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_facts(
        "Store", {"timestamp": datetime(2013, 1, 1, tzinfo=UTC), "local": datetime(2013, 1, 2)}
    )

    shown, _ = lines(capsys)
    assert any("2013-01-01 00:00:00Z" in line for line in shown)
    assert any(line.rstrip().endswith("2013-01-02 00:00:00") for line in shown)


def test_a_title_that_is_wider_than_its_table_is_on_one_line(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    output.print_rows("A title of many words above few columns", ["n"], [[1]])

    shown, _ = lines(capsys)
    assert any("A title of many words above few columns" in line for line in shown)


def test_a_time_is_not_folded(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime(2013, 1, 1, 10, tzinfo=UTC)
    row = [1, moment, "somebody@somewhere:4286", "one more flight", 0, 0]

    output.print_rows("History", ["version", "timestamp", *NAMES[:4]], [row] * 4)

    shown, _ = lines(capsys)
    assert len([line for line in shown if "2013-01-01 10:00:00Z" in line]) == 4


def test_what_is_found_is_told_whole_with_a_key_that_can_be_copied(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "pages/" + "0" * 100
    sentence = f"{key}: expected digest {'a' * 64}, and has {'b' * 64}: rows 0 to 9 of 60 columns are gone."

    output.print_findings(
        "Faults", ["fault", "object", "what", "what to do"], [["lost", key, sentence, "Run it."]]
    )

    shown, _ = lines(capsys)
    assert any(key in line for line in shown)
    assert "".join(sentence.split()) in "".join("".join(shown).split())
    assert "what to do: Run it." in [line.strip() for line in shown]


def test_sentences_are_all_there_however_narrow_the_terminal_is(
    terminal: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    check = ["clock of the storage", "failed", "+312.0 s against the storage", "Set the clock."]

    output.print_rows("Doctor", ["check", "status", "found", "what to do"], [check] * 4, whole=True)

    shown, told = lines(capsys)
    assert max(len(line) for line in shown if "\x1b" not in line) <= 60
    assert all(any(word in line for line in shown) for word in " ".join(check).split())
    assert told == ""
