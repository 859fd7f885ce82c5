from __future__ import annotations

from spark_pages.display.markup import Markup, card, document, facts, joined, table, tag
from spark_pages.display.text import seconds, shorten, size
from tests.display.reading import HOSTILE, assert_harmless, elements


def test_text_that_looks_like_markup_is_shown_and_does_nothing():
    html = card(HOSTILE, table([HOSTILE], [[HOSTILE]]), facts({HOSTILE: HOSTILE}))

    assert_harmless(html)
    words = "".join(elements(html).words)
    assert words.count("<script>alert(1)</script>") == 5


def test_an_attribute_cannot_be_left():
    html = tag("td", "", title='"><script>alert(1)</script>')

    assert [name for name, _ in elements(html).found] == ["td"]


def test_characters_that_have_no_place_in_a_document_are_replaced():
    html = tag("td", "a\x00b\u202ec\ud800d")

    assert html == "<td>a\ufffdb\ufffdc\ufffdd</td>"


def test_markup_goes_into_markup_as_it_is():
    assert joined(Markup("<b>"), "<b>") == "<b>&lt;b&gt;"


def test_a_long_table_is_cut_and_says_by_how_much():
    html = table(["n"], [[n] for n in range(1_000)], more=5)

    assert html.count("<tr>") == 102
    assert "… and 905 more" in html


def test_numbers_stand_to_the_right_and_names_to_the_left():
    html = table(["name", "n"], [["a", 12345]])

    sides = [attributes["align"] for name, attributes in elements(html).found if name in ("th", "td")]
    assert sides == ["left", "right", "left", "right"]
    assert "12,345" in html


def test_a_document_runs_and_loads_nothing():
    page = document(HOSTILE, HOSTILE, [tag("p", HOSTILE)])

    names = [name for name, _ in elements(page).found]
    assert names == ["html", "head", "meta", "meta", "meta", "title", "style", "body", "h1", "p", "p"]
    assert "default-src 'none'" in elements(page).found[4][1]["content"]


def test_sizes_and_durations_are_for_people():
    assert [size(n) for n in (0, 1023, 1024, 5 << 30)] == ["0 B", "1,023 B", "1.0 KiB", "5.0 GiB"]
    assert [seconds(s) for s in (0, 2e-5, 0.0015, 12.3, 7200)] == ["0 µs", "20 µs", "1.5 ms", "12 s", "2 h"]


def test_a_long_name_loses_its_middle():
    assert shorten("a" * 50 + "b" * 50, 9) == "aaaa…bbbb"
