import subprocess
import sys
from datetime import UTC, datetime

import pytest

from spark_pages.cli import output
from spark_pages.errors import (
    CommitConflictError,
    SchemaMismatchError,
    StorageError,
    TableNotFoundError,
)
from spark_pages.job_result import exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageError("later"), 1),
        (SchemaMismatchError("not these"), 2),
        (CommitConflictError("again"), 3),
        (TableNotFoundError("none"), 4),
    ],
)
def test_the_exit_code_tells_what_to_do(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_what_json_has_no_type_for_becomes_text() -> None:
    moment = datetime(2013, 1, 1, tzinfo=UTC)

    assert output.plain({"a": [moment, b"\xff", float("inf")]}) == {
        "a": ["2013-01-01T00:00:00+00:00", "ff", None]
    }


def test_help_imports_neither_arrow_nor_the_store() -> None:
    code = (
        "import sys; sys.argv = ['spark-pages', '--help']\n"
        "from spark_pages.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'pyarrow', 'numpy', 'obstore'} & set(sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_an_error_of_the_system_names_its_file_first(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_error(PermissionError(13, "Permission denied", "/there"), as_json=False)

    assert capsys.readouterr().err == "error [PermissionError] /there: Permission denied.\n"
