"""The page on the service names all that it can be asked."""

from __future__ import annotations

import re
from pathlib import Path

from spark_pages.service.flight_server import FlightService
from spark_pages.service.serving import Serving
from spark_pages.service.settings import ServiceSettings
from tests.service.stores import store_with_a_past

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


def test_the_page_lists_every_question_and_metric_of_the_service():
    text = PAGE.read_text(encoding="utf-8")
    with Serving(store_with_a_past(versions=1).object_store, ServiceSettings(), None) as serving:
        flight: FlightService = serving._flight
        asked = {*flight._actions, *flight._gets, "health"}
        told = re.findall(r"^# TYPE (\w+)", serving.metrics.text().decode(), re.MULTILINE)

    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) - {"get"} == asked
    for name in told:
        assert name.endswith("_created") or f"`{name}`" in text
