"""`spark-pages serve` as a process: what it says, that it ends as it should, and what it refuses."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from cryptography import x509
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app
from spark_pages.errors import AccessDeniedError, StorageError
from spark_pages.service.dev_credentials import make_dev_credentials
from spark_pages.service.tokens import TokenVerifier
from tests.service.conftest import SECRET, token
from tests.service.stores import store_with_a_past

_TIME_S = 120


@pytest.fixture
def files(tmp_path, ca, certificate):
    """A store, certificate, private key and secret on disk."""
    store = store_with_a_past(str(tmp_path / "store"), versions=2)
    (tmp_path / "cert.pem").write_bytes(certificate.cert_chain_pems[0].bytes())
    (tmp_path / "key.pem").write_bytes(certificate.private_key_pem.bytes())
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    (tmp_path / "ca.pem").write_bytes(ca.cert_pem.bytes())
    store.close()
    return tmp_path


_PROGRAM = "from spark_pages.cli import main; main()"

_HANGING = """
import os, sys, time
import spark_pages.storage as storage
from spark_pages.cli import main
from spark_pages.storage import MeteredStore

class Hanging(MeteredStore):
    def stamps(self, keys):
        while os.path.exists(sys.argv[2] + "/../hang"):
            time.sleep(0.01)
        return super().stamps(keys)

opener = storage.open_object_store
storage.open_object_store = lambda url, options=None: Hanging(opener(url, options))
main()
"""


def serve(files, *more: str, program: str = _PROGRAM) -> subprocess.Popen[str]:
    command = [
        *(
            sys.executable,
            "-c",
            program,
            "serve",
            str(files / "store"),
            "--port",
            "0",
            "--json",
        ),
        *("--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem")),
        *("--token-key", str(files / "secret"), "--http-port", "0", *more),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def metrics(told: dict[str, object]) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{told['http_port']}/metrics", timeout=_TIME_S) as answer:
        return answer.read().decode()


@pytest.mark.slow
def test_it_serves_until_sigterm_and_ends_with_zero(files):
    process = serve(files)
    told = json.loads(process.stdout.readline())
    store = sp.connect(told["url"], token(), certificate=str(files / "ca.pem"))
    rows = store.snapshot().table("t").read()
    health = urllib.request.urlopen(f"http://127.0.0.1:{told['http_port']}/health", timeout=_TIME_S)

    assert told["url"].startswith("grpc+tls://127.0.0.1:")
    assert json.load(health) == {"status": "serving"}
    assert rows.equals(sp.open(str(files / "store")).snapshot().table("t").read())
    forged = jwt.encode({"aud": "spark-pages", "exp": time.time() + 60}, b"y" * 40, algorithm="HS256")
    with pytest.raises(AccessDeniedError):
        sp.connect(told["url"], forged, certificate=str(files / "ca.pem"))

    process.send_signal(signal.SIGTERM)
    shown = "".join(process.communicate(timeout=_TIME_S))
    store.close()
    assert process.returncode == 0
    assert SECRET.decode() not in shown
    assert forged not in shown


@pytest.mark.slow
def test_one_command_serves_this_machine_and_prints_the_line_of_a_client(files):
    # given
    command = [sys.executable, "-c", _PROGRAM, "serve", "--dev", str(files / "store"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (line := process.stdout.readline()).startswith("store = "):
        assert line, process.stderr.read()
    # when
    store = eval(line.removeprefix("store = "), {"spark_pages": sp})  # noqa: S307 - what a user would paste
    rows = store.snapshot().table("t").read()
    folder = Path(re.search(r"certificate='([^']*)'", line)[1]).parent
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.iterdir())}
    # then
    assert rows.equals(sp.open(str(files / "store")).snapshot().table("t").read())
    with pytest.raises(AccessDeniedError):
        sp.connect(store.url, token(), certificate=str(folder / "certificate.pem"))
    assert all(mode & 0o077 == 0 for mode in modes if mode & 0o100)  # nobody else gets into the folder
    store.close()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=_TIME_S)
    assert process.returncode == 0
    assert not folder.exists()


@pytest.mark.slow
def test_it_ends_in_bounded_time_though_a_call_hangs_in_storage(files):
    process = serve(files, "--drain", "0.2", "--staleness", "0.000001", program=_HANGING)
    told = json.loads(process.stdout.readline())
    store = sp.connect(told["url"], token(), certificate=str(files / "ca.pem"), retry_s=0.0)
    store.snapshot()
    (files / "hang").touch()
    failed: list[Exception] = []

    def ask() -> None:
        with pytest.raises(StorageError) as caught:
            store.snapshot()
        failed.append(caught.value)

    call = threading.Thread(target=ask)
    call.start()
    while "spark_pages_calls_in_flight 1.0" not in metrics(told):
        time.sleep(0.01)

    process.send_signal(signal.SIGTERM)
    shown = "".join(process.communicate(timeout=_TIME_S))
    call.join()
    store.close()

    assert process.returncode == 1
    assert "cut off" in shown
    assert failed


@pytest.mark.slow
def test_a_port_that_is_taken_is_told_without_a_traceback(files):
    process = serve(files)
    told = json.loads(process.stdout.readline())
    second = serve(files, "--port", told["url"].rsplit(":", 1)[1])
    out, err = second.communicate(timeout=_TIME_S)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=_TIME_S)

    assert second.returncode == 1
    assert "Cannot listen" in out + err
    assert "Traceback" not in out + err
    assert process.returncode == 0


def test_it_does_not_serve_in_the_clear_or_to_everybody_unless_it_is_told_to(files):
    runner, url = CliRunner(), str(files / "store")
    tls = ["--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem")]
    keys = ["--token-key", str(files / "secret")]

    for arguments, expected in (
        ([*keys], "--tls-cert"),
        ([*tls], "--token-key"),
        ([*tls, "--no-tls", *keys], "--tls-cert"),
        ([*tls, *keys, "--no-tokens"], "--token-key"),
        ([*tls[:2], *keys], "--tls-cert"),
        ([*tls, *keys, "--token-algorithm", "none"], "not known"),
        ([*tls, "--token-key", str(files / "cert.pem")], "no secret"),
        ([*tls, "--token-key", str(files / "secret"), "--token-algorithm", "RS256"], "no public key"),
    ):
        result = runner.invoke(app, ["serve", url, "--json", *arguments])
        assert result.exit_code == 2
        error = json.loads(result.stdout)["error"]
        assert expected in error["message"] + error["hint"]
        assert SECRET.decode() not in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--no-tls"], "--no-tls"),
        (["--no-tokens"], "--no-tokens"),
        (["--token-algorithm", "RS256"], "--token-algorithm"),
        (["--host", "192.0.2.7"], "192.0.2.7"),
    ],
)
def test_a_service_to_try_makes_all_of_its_credentials_and_stays_on_this_machine(files, arguments, expected):
    result = CliRunner().invoke(app, ["serve", "--dev", str(files / "store"), "--json", *arguments])

    error = json.loads(result.stdout)["error"]
    assert result.exit_code == 2
    assert expected in error["message"] + error["hint"]


def test_credentials_to_try_a_service_are_good_for_a_day_and_shown_by_nothing():
    now = datetime.now(UTC)

    made = make_dev_credentials("an audience", "an issuer")

    access = TokenVerifier([made.secret], "HS256", "an audience", "an issuer").verify(f"Bearer {made.token}")
    until = datetime.fromtimestamp(jwt.decode(made.token, options={"verify_signature": False})["exp"], UTC)
    certificate = x509.load_pem_x509_certificate(made.certificate)
    assert access.allows("default")
    assert abs(until - now - timedelta(days=1)) < timedelta(minutes=1)
    assert abs(certificate.not_valid_after_utc - until) <= timedelta(seconds=1)
    assert not any(each.decode() in repr(made) for each in (made.private_key, made.secret))
    assert made.token not in repr(made)
    assert make_dev_credentials("an audience").secret != made.secret


def test_a_store_that_is_not_there_is_told_as_such(files):
    arguments = ["serve", str(files / "nowhere"), "--json", "--no-tls", "--no-tokens", "--port", "0"]
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 4
    assert json.loads(result.stdout)["error"]["type"] == "StoreNotFoundError"


_WITHOUT = """
import sys
import spark_pages.service.remote_store
from spark_pages.errors import MissingDependencyError

for package in ("jwt", "prometheus_client", "cryptography.exceptions"):
    kept = sys.modules.pop(package, None)
    for name in [each for each in sys.modules if each.startswith("spark_pages.service.")]:
        del sys.modules[name]
    sys.modules[package] = None
    try:
        import spark_pages.service.serving
    except MissingDependencyError as error:
        print(error)
    del sys.modules[package]
"""


def test_without_the_extra_serving_says_which_one_is_missing_and_reading_works():
    found = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True)

    told = found.stdout.splitlines()
    assert len(told) == 3
    for package, message in zip(("jwt", "prometheus_client", "cryptography"), told, strict=True):
        assert f"{package} is not installed" in message
        assert "[service]" in message
