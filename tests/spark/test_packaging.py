"""The package travels to executors as one wheel; profiles of the configuration are read by Spark."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark.session import ARROW_IN_JVM, KEEPS_FREED_MEMORY, find_java
from tests import PROJECT
from tests.effort import LONG
from tests.spark.conftest import flights

needs_java = pytest.mark.skipif(find_java() is None, reason="spark-submit needs Java, and there is none")

NEEDED = ("pyarrow", "numpy", "lz4", "fastavro", "obstore", "xxhash", "tenacity", "sqlglot")
"""As docs/spark.md says."""

JOB = """
import json, sys
from spark_pages.spark.session import session

def where(_):
    import spark_pages
    yield spark_pages.__file__

spark = session("packaging", master=None)
rows = spark.read.format("spark_pages").option("table", "flights").load(sys.argv[1])
seen = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
print(json.dumps({"where": seen[0], "rows": rows.count()}))
"""


def submitted(folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """What `JOB` told, of a store beside it, when it was submitted from this folder."""
    (folder / "job.py").write_text(JOB)
    store = sp.create(str(folder / "store"))
    with store.transaction() as txn:
        txn.create_table("flights", flights(0, 1).schema)
        txn.append("flights", flights(0, 5_000))
    import pyspark  # noqa: PLC0415 - only where Java is

    ended = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--properties-file", str(PROJECT / "conf" / "spark-defaults.conf")),
            *(*arguments, str(folder / "job.py"), str(folder / "store")),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable, **environment},
    )
    causes = [line for line in ended.stderr.splitlines() if "Error" in line]
    assert ended.returncode == 0, causes or ended.stderr[-2000:]
    told: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return told


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "needed",
    [
        pytest.param((), id="beside what is installed"),
        pytest.param(
            NEEDED,
            id="whole",
            marks=pytest.mark.skipif(not LONG, reason="packs 300 MB"),
        ),
    ],
)
def test_executors_run_the_environment_that_was_submitted(tmp_path: Path, needed: tuple[str, ...]) -> None:
    import pyspark  # noqa: PLC0415 - only where Java is

    home = tmp_path / "spark"  # where executors of a local cluster work, too
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    packed = tmp_path / "environment"
    pack_environment(packed, needed)
    archive = tmp_path / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        tar.add(packed, ".")

    told = submitted(
        tmp_path,
        *("--master", "local-cluster[1,1,1024]", "--conf", "spark.executor.memory=1g"),
        *("--archives", f"{archive}#environment"),
        PYSPARK_PYTHON="./environment/bin/python",  # the driver finds what was packed, too
        PYTHONPATH="",  # executors find the package in the archive alone
        SPARK_HOME=str(home),
        SPARK_LOCAL_IP="127.0.0.1",
    )

    assert told["rows"] == 5_000
    where = Path(told["where"])
    assert where.is_relative_to(home / "work"), where
    assert where.parts[-6:-1] == ("environment", "lib", where.parts[-4], "site-packages", "spark_pages")


def pack_environment(folder: Path, needed: tuple[str, ...]) -> None:
    """What ``venv-pack`` packs, and no more of it than executors need; or this package alone, which finds the
    others where they are installed.
    """
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    base = Path(sys.executable).resolve()
    (folder / "bin" / "python").symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    installed = Path(pa.__file__).parents[1]
    if not needed:
        (packages / "installed.pth").write_text(f"{installed}\n")
    for name in needed:
        ignored = shutil.ignore_patterns("tests", "include", "__pycache__")
        shutil.copytree(installed / name, packages / name, ignore=ignored, symlinks=True)
    for libs in installed.glob("*.libs") if needed else ():
        shutil.copytree(libs, packages / libs.name)
    shutil.copytree(Path(sp.__file__).parent, packages / "spark_pages")


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_executors_run_the_wheel_that_was_submitted(tmp_path: Path, wheel: Path) -> None:
    package = Path(shutil.copy(wheel, tmp_path / "spark_pages.zip"))  # Spark puts no other ending on the path

    told = submitted(tmp_path, "--py-files", str(package), PYSPARK_PYTHON=sys.executable)

    assert told["rows"] == 5_000
    assert package.name in told["where"]


@pytest.mark.parametrize("file", sorted((PROJECT / "conf").glob("*.conf")), ids=lambda file: file.stem)
def test_a_profile_of_the_configuration_holds_properties_of_spark_and_no_secret(file: Path) -> None:
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]

    assert all(re.fullmatch(r"spark\.[\w.-]+\s+\S.*", line) for line in lines)
    assert not re.search(r"(?i)password|secret_access|access_key|token", "\n".join(lines))
    # Spark would read too few rows of other Python sources, too.
    assert not [line for line in lines if "filterPushdown" in line]
    # Where Spark does not find it by itself, beside the profile.
    names_logging = any("log4j2.configurationFile" in line for line in lines)
    assert names_logging == (file.stem in ("spark-kubernetes", "spark-yarn"))


@pytest.mark.parametrize("file", sorted((PROJECT / "conf").glob("*.conf")), ids=lambda file: file.stem)
def test_a_profile_of_the_configuration_makes_rows_from_python_as_cheap_as_session_does(file: Path) -> None:
    lines = file.read_text().splitlines()
    properties = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))

    assert properties.items() >= KEEPS_FREED_MEMORY.items()
    java = [value for name, value in properties.items() if name.endswith(".extraJavaOptions")]
    assert java
    assert all(ARROW_IN_JVM in value.split() for value in java)


_OF_ANY_NAME = re.compile(
    r"spark\.(executorEnv|yarn\.appMasterEnv|kubernetes\.driverEnv|kubernetes\.(driver|executor)\.secrets)\.[\w-]+"
)


def test_spark_knows_every_property_of_every_profile(spark: SparkSession) -> None:
    entries = spark._jvm.org.apache.spark.internal.config.ConfigEntry
    for holder in ("deploy.k8s.Config$", "deploy.yarn.config.package$", "sql.internal.SQLConf$"):
        spark._jvm.java.lang.Class.forName(f"org.apache.spark.{holder}")  # their properties are known now

    unknown = [
        f"{file.name}: {name}"
        for file in (PROJECT / "conf").glob("*.conf")
        for line in file.read_text().splitlines()
        if line and not line.startswith("#")
        for name in line.split()[:1]
        if name != "spark.master" and not _OF_ANY_NAME.fullmatch(name) and entries.findEntry(name) is None
    ]

    assert entries.findEntry("spark.executor.memroy") is None
    assert unknown == []
