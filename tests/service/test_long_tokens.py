"""Tokens that no header can hold are refused by both sides, with the reason; hints name no scope of more."""

from __future__ import annotations

import pytest

import spark_pages as sp
from spark_pages.errors import AccessDeniedError, InvalidInputError
from spark_pages.service.failures import MOST_TOKEN
from spark_pages.service.tokens import Access, TokenVerifier


@pytest.mark.parametrize("token", ["x" * 20_000, lambda: "x" * 20_000], ids=["a text", "a function"])
def test_a_client_refuses_a_token_that_grpc_would_drop(token):
    with pytest.raises(InvalidInputError, match=r"it has 20,000 characters, expected at most 7,168"):
        sp.connect("grpc+tls://127.0.0.1:1", token)


def test_a_service_says_of_a_long_token_that_it_is_long():
    verifier = TokenVerifier([b"k" * 32], "HS256", "readers")

    with pytest.raises(AccessDeniedError, match=r"it has 7,169 characters, expected at most 7,168"):
        verifier.verify("Bearer " + "x" * (MOST_TOKEN + 1))


@pytest.mark.parametrize("namespace", ["*", "sales read:*", "a\tb", "a\u00a0b"])
def test_the_hint_for_a_namespace_that_no_scope_can_name_grants_nothing(namespace):
    with pytest.raises(AccessDeniedError) as refused:
        Access(frozenset()).check(namespace)

    assert "read:" not in refused.value.hint


def test_the_hint_for_any_other_namespace_is_its_scope():
    with pytest.raises(AccessDeniedError, match=r"Ask for a token with the scope read:sales\."):
        Access(frozenset()).check("sales")
