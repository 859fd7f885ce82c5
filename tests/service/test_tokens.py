"""Who may read what: tokens that are not good, and namespaces that they do not name."""

from __future__ import annotations

import base64
import json
import time

import jwt
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import spark_pages as sp
from spark_pages.errors import AccessDeniedError, InvalidInputError, ObjectNotFoundError
from spark_pages.service.tokens import Access, TokenVerifier
from tests.service.conftest import AUDIENCE, SECRET, token
from tests.service.stores import rows, store_with_a_past, write_more


def hs256(key: bytes = SECRET, **more: object) -> TokenVerifier:
    return TokenVerifier([key], "HS256", AUDIENCE, **more)


def refused(verifier: TokenVerifier, bearer: str | None, why: str) -> None:
    with pytest.raises(AccessDeniedError, match=why) as caught:
        verifier.verify(None if bearer is None else f"Bearer {bearer}")
    assert not bearer or bearer not in repr(caught.value.__dict__)


def unsigned(algorithm: str, **claims: object) -> str:
    """A token without a signature that says of itself what it wants."""
    known = {"aud": AUDIENCE, "exp": time.time() + 600, "scope": "read:*", **claims}
    parts = [{"alg": algorithm, "typ": "JWT"}, known]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, ""])


def test_a_good_token_gives_the_namespaces_that_its_scopes_name():
    access = hs256().verify(f"Bearer {token('read:default read:sales write:x admin')}")

    assert access == Access(frozenset({"default", "sales"}))
    assert not access.allows("x")
    assert hs256().verify(f"bearer {token('read:*')}").allows("anything")
    assert not hs256().verify(f"Bearer {token(None)}").allows("default")


def test_expired_early_foreign_and_incomplete_tokens_are_refused():
    refused(hs256(), token(exp=time.time() - 60), "has expired")
    refused(hs256(), token(nbf=time.time() + 600), "not valid yet")
    refused(hs256(), token(aud="another"), "another audience")
    refused(hs256(), token(exp=None), "lacks 'exp' or 'aud'")
    refused(hs256(), token(aud=None), "lacks 'exp' or 'aud'")
    refused(hs256(issuer="us"), token(iss="them"), "another issuer")
    assert hs256(issuer="us").verify(f"Bearer {token(iss='us')}").allows("x")


def test_forged_tokens_are_refused():
    forged = jwt.encode({"aud": AUDIENCE, "exp": time.time() + 60}, b"x" * 40, algorithm="HS256")
    head, body, signature = token().split(".")
    changed = base64.urlsafe_b64encode(
        json.dumps({"aud": AUDIENCE, "exp": time.time() + 60, "scope": "read:*"}).encode()
    )

    refused(hs256(), forged, "is not valid")
    refused(hs256(), f"{head}.{changed.decode().rstrip('=')}.{signature}", "is not valid")
    refused(hs256(), f"{head}.{body}.", "is not valid")
    for nothing in (None, "", "a.b.c", "x" * 20_000, "\x00", "é"):
        refused(hs256(), nothing, "is not valid|no bearer token|expected at most 7,168")


def test_tokens_without_a_signature_are_refused_whatever_they_call_it():
    for name in ("none", "None", "NONE", "nOnE", ""):
        refused(hs256(), unsigned(name), "not accepted|is not valid")


def test_a_public_key_is_never_taken_for_a_secret():
    private = rsa.generate_private_key(65537, 2048)
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    verifier = TokenVerifier([pem], "RS256", AUDIENCE)
    claims = {"aud": AUDIENCE, "exp": time.time() + 60, "scope": "read:*"}
    good = jwt.encode(claims, private, algorithm="RS256")
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        head + b"." + body, pem
    )
    confused = b".".join([head, body, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()

    assert verifier.verify(f"Bearer {good}").allows("x")
    refused(verifier, confused, "not accepted")
    refused(verifier, token(), "not accepted")
    with pytest.raises(InvalidInputError, match="no secret"):
        TokenVerifier([pem], "HS256", AUDIENCE)


def test_ed25519_tokens_are_checked_and_several_keys_may_be_good_at_a_time():
    keys = [ed25519.Ed25519PrivateKey.generate() for _ in range(3)]
    pems = [k.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for k in keys]
    verifier = TokenVerifier(pems[:2], "EdDSA", AUDIENCE)
    claims = {"aud": AUDIENCE, "exp": time.time() + 60, "scope": "read:a"}
    signed = [jwt.encode(claims, key, algorithm="EdDSA") for key in keys]

    assert verifier.verify(f"Bearer {signed[0]}").allows("a")
    assert verifier.verify(f"Bearer {signed[1]}").allows("a")
    refused(verifier, signed[2], "is not valid")


def test_keys_that_do_not_fit_the_algorithm_are_refused_at_the_start():
    private = ed25519.Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    for keys, algorithm in (([b"short"], "HS256"), ([pem], "EdDSA"), ([b"x" * 64], "RS256"), ([], "HS256")):
        with pytest.raises(InvalidInputError) as caught:
            TokenVerifier(keys, algorithm, AUDIENCE)
        assert "PRIVATE" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="expected 'HS256', 'RS256' or 'EdDSA'"):
        TokenVerifier([SECRET], "none", AUDIENCE)


def test_a_call_without_a_good_token_is_refused_over_the_network(serve):
    served = serve(store_with_a_past(versions=1))
    client = served.connect()

    with pytest.raises(AccessDeniedError, match="no bearer token"):
        sp.connect(served.url, certificate=served.ca, retry_s=0.0)
    with pytest.raises(AccessDeniedError, match="has expired"):
        served.connect(bearer=token(exp=time.time() - 60))
    with pytest.raises(AccessDeniedError, match=r"not valid|not accepted"):
        served.connect(bearer=unsigned("none"))
    assert client.snapshot().table("t").num_rows


def test_a_token_may_be_renewed_between_calls(serve):
    served = serve(store_with_a_past(versions=1))
    current = [token()]
    client = served.connect(bearer=lambda: current[0])
    current[0] = token(exp=time.time() - 60)
    with pytest.raises(AccessDeniedError, match="has expired"):
        client.snapshot()

    current[0] = token()

    assert client.snapshot().version > 0


def test_a_token_for_one_namespace_sees_nothing_of_another(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()
    write_more(store)
    client = serve(store).connect("read:default")
    snapshot = client.snapshot()

    assert snapshot.tables() == ["other", "t"]
    assert snapshot.table("t").read().equals(store.snapshot().table("t").read())
    for name in ("private.secrets", "private.nothing", "system.catalog", "nowhere.at_all"):
        with pytest.raises(AccessDeniedError, match=r"Cannot read namespace .*: the token does not allow it"):
            snapshot.table(name)


def test_a_token_without_scopes_reads_nothing(serve):
    client = serve(store_with_a_past(versions=1)).connect("write:*")

    assert client.snapshot().tables() == []
    with pytest.raises(AccessDeniedError):
        client.snapshot().table("t")


def test_answers_hold_no_trace_of_tables_of_other_namespaces(serve, small_trees):
    store = store_with_a_past()
    with store.transaction() as txn:  # pages of both namespaces in one commit
        txn.append("t", rows(9000, 3))
        txn.append("private.secrets", pa.table({"s": pa.array([888_888_888_888], pa.int64())}))
    store.checkpoint()
    client = serve(store).connect("read:default")
    seen: list[bytes] = []
    get = client._calls.get

    def listening(what, **fields):
        header, batches = get(what, **fields)
        seen.append(json.dumps(header).encode() + b"".join(_raw(batch) for batch in batches))
        return header, batches

    client._calls.get = listening
    table = client.snapshot().table("t")
    table.pages()
    table.read()

    secret = store.snapshot().table("private.secrets")
    checksums = secret.pages()["checksum"].to_pylist()
    assert len(seen) > 5
    for each in (888_888_888_888, *checksums):
        assert not any(each.to_bytes(8, "little", signed=True) in answer for answer in seen)
    assert not any(b"secrets" in answer for answer in seen)


def test_bytes_of_pages_of_other_namespaces_are_not_handed_out(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()  # puts inline pages of all tables into one file
    served = serve(store)
    client = served.connect("read:default")
    version = store.snapshot().version
    fresh = sp.Store(store.object_store).snapshot()
    mine, theirs = fresh.table("t").pages(), fresh.table("private.secrets").pages()
    paths = set(mine["path"].to_pylist()) & set(theirs["path"].to_pylist())
    assert paths, "the checkpoint should have one file for both tables"
    path = paths.pop()
    answer = client.table_at("default", "t", version).answer
    pieces = [
        [field_id, place.location.digest, "", -1, 0]
        for field_id, found in answer.places.items()
        for place in found
    ]
    secret = next(row for row in theirs.to_pylist() if row["path"] == path)
    start, size = secret["offset"], secret["alloc_len"]

    def ask(db: str, table: str, offset: int, length: int) -> bytes:
        asked = {"db": db, "table": table, "version": version, "path": path, "pieces": pieces}
        _, batches = client._calls.get("bytes", **asked, ranges=[[offset, length]])
        return b"".join(part for batch in batches for part in batch.column(1).to_pylist())

    with pytest.raises(ObjectNotFoundError, match="no page that this snapshot names"):
        ask("default", "t", start, size)
    with pytest.raises(AccessDeniedError):
        ask("private", "secrets", start, size)
    whole = store.object_store.size(path)
    told = ask("default", "t", 0, whole)
    really = store.object_store.get_range(path, 0, whole)
    assert told[start : start + size] == bytes(size) != really[start : start + size]
    own = next(row for row in mine.to_pylist() if row["path"] == path)
    first, last = own["offset"], own["offset"] + own["actual_len"]
    assert told[first:last] == really[first:last]


def test_pieces_of_other_tables_are_refused_though_their_names_are_known(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()
    served = serve(store)
    all_seeing, client = served.connect(), served.connect("read:default")
    version = store.snapshot().version
    answer = all_seeing.table_at("private", "secrets", version).answer
    own = client.table_at("default", "t", version).answer
    known = {place.location.digest for found in own.places.values() for place in found}
    ((field_id, found),) = answer.places.items()
    foreign = [place.location.digest for place in found if place.location.digest not in known]
    assert foreign

    for digest in foreign:
        for what in ("piece", "stats", "part"):
            with pytest.raises(ObjectNotFoundError):
                client._calls.get(
                    what, db="default", table="t", version=version, piece=[field_id, digest, "", -1, 0]
                )


def test_secrets_are_in_no_metric_log_error_or_repr(serve, caplog, capfd):
    bearer = token()
    served = serve(store_with_a_past(versions=1))
    client = served.connect(bearer=bearer)
    errors = []
    for ask in (
        lambda: client.snapshot(99),
        lambda: client.snapshot().table("x"),
        lambda: client._calls.request("?"),
    ):
        with pytest.raises(sp.SparkPagesError) as caught:
            ask()
        errors.append(repr(caught.value) + str(caught.value) + repr(caught.value.context))
    expired = token(exp=time.time() - 60)
    with pytest.raises(AccessDeniedError) as caught:
        served.connect(bearer=expired)
    errors.append(repr(caught.value) + str(caught.value) + repr(caught.value.context))

    shown = "".join(errors) + caplog.text + "".join(capfd.readouterr())
    shown += (
        repr(client) + repr(client._calls) + repr(served.settings) + served.serving.metrics.text().decode()
    )
    for secret in (bearer, expired, bearer.split(".")[2], SECRET.decode(), "PRIVATE KEY"):
        assert secret not in shown


def test_several_tokens_in_one_call_are_refused(serve):
    served = serve(store_with_a_past(versions=1))
    client = fl.FlightClient(served.url, tls_root_certs=served.ca)
    header = (b"authorization", f"Bearer {token()}".encode())

    with pytest.raises(fl.FlightUnauthenticatedError):
        list(client.do_action(fl.Action("open", b""), fl.FlightCallOptions(headers=[header, header])))
    client.close()


def _raw(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
