"""The health of a store, which its report shows first."""

from __future__ import annotations

import re

import pytest

import spark_pages as sp
from spark_pages.pictures import report
from spark_pages.pictures.health import health
from spark_pages.pictures.report import report_page
from spark_pages.store import Store


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    return sp.create(f"memory://health-{abs(hash(request.node.name))}")


def test_a_store_in_order_says_so_before_anything_else(store: Store) -> None:
    store.write("t", {"n": list(range(1_000))})

    page = report_page(store)

    assert re.findall(r"<h2>(.*?)</h2>", page)[0] == "Is the store in order?"
    assert "The store is in order." in page
    assert "2 versions, from version 0" in page
    assert "none, and 2 commits since" in page
    assert "what a vacuum would free" in page


def test_many_small_pages_and_a_long_log_name_the_command(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_pages.pictures.health.MANY_COMMITS", 10)
    monkeypatch.setattr("spark_pages.pictures.health.FEW_SMALL", 1)
    store.write("t", {"n": list(range(1_000))})
    for _ in range(12):
        store.append("t", {"n": [1]})

    told = health(store, [store["t"]], None, report.MOST_PAGES)

    assert "2 things to do." in told
    assert f"spark-pages compact-pages {store.url} --table t" in told
    assert f"spark-pages checkpoint {store.url}" in told


def test_chains_of_too_many_pages_are_left_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("t", {"n": [1]})
    monkeypatch.setattr(report, "MOST_PAGES", 0)

    page = report_page(store)

    assert "0 of 0 pages" in page
    assert re.search(r"<td[^>]*>–</td>", page)
