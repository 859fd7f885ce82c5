"""Addresses that are almost right are refused with the right spelling, and no folder is made of them."""

from __future__ import annotations

import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError

MISSPELLED = {
    "s3:/bucket/x": "s3://bucket/x",
    "s3:bucket/x": "s3://bucket/x",
    "s3//bucket/x": "s3://bucket/x",
    "S3://bucket/x": "s3://bucket/x",
    "s3:\\\\bucket\\x": "s3://bucket",
    "gs:/bucket": "gs://bucket",
    "az:container": "az://container",
    "abfss:/container": "abfss://container",
    "memory:name": "memory://name",
    "file:relative": "file:///absolute/path, or the path itself: relative",
    "file:": "file:///absolute/path",
    "dbfs:/x": "Write a path, or file://, s3://",
    "hdfs:/x": "Write a path, or file://, s3://",
    "https:/x": "Write a path, or file://, s3://",
}


@pytest.mark.parametrize("address", MISSPELLED)
@pytest.mark.parametrize("verb", [sp.create, sp.open])
def test_a_misspelled_address_is_refused_with_the_right_spelling(address, verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidInputError) as refused:
        verb(address)

    assert MISSPELLED[address] in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["s3:key:secret@bucket", "S3://bucket/x?sig=secret"])
def test_a_misspelled_address_with_what_may_be_a_secret_is_not_repeated(address):
    with pytest.raises(InvalidInputError) as refused:
        sp.open(address)

    assert "secret" not in repr(refused.value)


@pytest.mark.parametrize("folder", ["s3", "s3/x", "gs/stores", "a:b", "C:x", "./s3:/x", "file", "memory/x"])
def test_folders_may_be_called_anything_else(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    sp.create(folder)

    assert sp.open(str(tmp_path / folder)).snapshot().version == 0


def test_an_address_without_a_bucket_is_refused_with_the_form_of_one_that_has_it():
    with pytest.raises(InvalidInputError, match=r"names no bucket or container") as caught:
        sp.open("s3://")

    assert "s3://NAME/folder" in caught.value.hint
