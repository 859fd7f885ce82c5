"""Whatever bytes a decoder is given, it answers, or says that they are damaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spark_pages.errors import DamageError
from spark_pages.format.commit import decode_slot
from tests.effort import LONG
from tests.fuzz import targets
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS, attempt, sealed_container, sealed_page

CASES = sorted((Path(__file__).parent / "cases").glob("*/*"))


@pytest.fixture(scope="module")
def good() -> dict[str, list[bytes]]:
    return seeds()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_what_was_found_once_is_not_found_again(case):
    attempt(case.parent.name, case.read_bytes())


def test_there_are_cases_that_were_found():
    assert {case.parent.name for case in CASES} <= set(TARGETS)
    assert len(CASES) >= 3


@pytest.mark.parametrize("name", TARGETS)
def test_good_inputs_are_taken_as_they_are_so_that_mutations_reach_behind_the_checks(name, good, monkeypatch):
    refused: list[Exception] = []

    def strict(work):
        try:
            return work()
        except DamageError as error:
            refused.append(error)

    monkeypatch.setattr(targets, "_tolerant", strict)

    for data in good[name]:
        attempt(name, data)

    of_replay = ("contradicts itself", "There is no _log/manifests/")  # which has nothing to stand on here
    assert [error for error in refused if not any(told in str(error) for told in of_replay)] == []


def test_sealing_makes_forged_bytes_pass_the_checksums(good):
    page, slot = good["page"][0], good["slot"][0]
    forged = slot[:-1] + bytes([slot[-1] ^ 1])

    assert sealed_page(page) == page
    assert sealed_page(page[:-1] + b"x")[64:] == page[64:-1] + b"x"
    assert sealed_container(slot) == slot
    with pytest.raises(DamageError, match="digest"):
        decode_slot(forged, "slot")
    assert decode_slot(sealed_container(forged), "slot").timestamp_us > 0


@pytest.mark.parametrize("name", TARGETS)
def test_no_mutation_of_a_good_input_crashes_its_decoder(name, good):
    chance = random.Random(None if LONG else name)

    for _ in range(20_000 if LONG else 120):
        data = mutated(chance.choice(good[name]), chance)
        try:
            attempt(name, data)
        except BaseException:
            (Path(__file__).parent / "cases" / name).mkdir(parents=True, exist_ok=True)
            (Path(__file__).parent / "cases" / name / f"mutation-{len(data)}").write_bytes(data)
            raise
