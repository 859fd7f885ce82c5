"""The verb ``serve``: one process keeps a store's metadata current for many readers."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import Profile, Url, options_of
from spark_pages.errors import InvalidInputError
from spark_pages.job_result import FAILED

if TYPE_CHECKING:
    from spark_pages.service.tokens import TokenVerifier


def serve(
    url: Url,
    host: Annotated[str, typer.Option(help="Listen at this address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8815,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain in PEM.", dir_okay=False, exists=True)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="Its private key in PEM.", dir_okay=False, exists=True)
    ] = None,
    no_tls: Annotated[
        bool, typer.Option("--no-tls", help="In the clear: behind a proxy, or for tests.")
    ] = False,
    token_key: Annotated[
        list[Path] | None,
        typer.Option(
            help="File with the secret (HS256) or public key in PEM that tokens are checked with; repeat it "
            "while keys change.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    token_algorithm: Annotated[str, typer.Option(help="HS256, RS256 or EdDSA.")] = "HS256",  # noqa: S107
    audience: Annotated[str, typer.Option(help="What 'aud' of a token must name.")] = "spark-pages",
    issuer: Annotated[
        str | None, typer.Option(help="What 'iss' of a token must be.", show_default="any")
    ] = None,
    no_tokens: Annotated[
        bool, typer.Option("--no-tokens", help="Everybody who can connect reads everything.")
    ] = False,
    http_host: Annotated[str, typer.Option(help="Address of /health and /metrics.")] = "127.0.0.1",
    http_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of /health and /metrics.", show_default="none")
    ] = None,
    staleness: Annotated[float, typer.Option(help="How many seconds answers may be behind.")] = 1.0,
    deadline: Annotated[float, typer.Option(help="Seconds that a call may take.")] = 30.0,
    drain: Annotated[float, typer.Option(help="Seconds that calls may go on after SIGTERM.")] = 20.0,
    dev: Annotated[
        bool,
        typer.Option(
            "--dev",
            help="On this machine, to try it: make a certificate and a token for a day, and print how to "
            "connect.",
        ),
    ] = False,
    profile: Profile = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout once it serves.")] = False,
) -> None:
    """Serve a store over Arrow Flight until SIGTERM or Ctrl-C; see docs/service.md."""
    from spark_pages.service.serving import Serving
    from spark_pages.service.settings import ServiceSettings
    from spark_pages.storage import open_object_store

    client: dict[str, str] = {}
    if dev:
        _check_dev(host, bool(tls_cert or tls_key or no_tls or token_key or no_tokens), token_algorithm)
        files = _DevFiles(audience, issuer)
        tls_cert, tls_key, token_key = files.certificate, files.private_key, [files.secret]
        client = {"certificate": str(files.certificate), "token": files.token}
    if no_tls == (tls_cert is not None and tls_key is not None) or (no_tls and (tls_cert or tls_key)):
        raise InvalidInputError(
            "Cannot serve without encryption: neither a certificate and its key nor --no-tls was given.",
            hint="Give --tls-cert and --tls-key, or --no-tls.",
        )
    settings = ServiceSettings(
        host=host,
        port=port,
        http_port=http_port,
        http_host=http_host,
        certificate=tls_cert.read_bytes() if tls_cert else None,
        private_key=tls_key.read_bytes() if tls_key else None,
        staleness_s=staleness,
        deadline_s=deadline,
        drain_s=drain,
    )
    verifier = _verifier(token_key or [], token_algorithm, audience, issuer, no_tokens)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    serving = Serving(open_object_store(url, options_of(url, profile)), settings, verifier)
    address = f"{settings.location.rsplit(':', 1)[0]}:{serving.port}"
    told = {"url": address, "http_port": serving.http_port, **client}
    if json:
        output.print_json(told)
    else:
        output.say(f"serving {url} at {address}")
    if client and not json:
        given = ", ".join(f"{name}={value!r}" for name, value in client.items())
        print(f"store = spark_pages.connect({address!r}, {given})")  # a line to copy, as it stands
    sys.stdout.flush()
    ended.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # who is in a hurry sends another one
    if not serving.drain():
        output.say(f"calls were still in flight after {drain:g} s and are cut off")
        sys.stdout.flush()
        os._exit(FAILED)  # a thread that hangs in storage would keep the interpreter from ending


_DEV_ALGORITHM = "HS256"


def _check_dev(host: str, others: bool, token_algorithm: str) -> None:
    from spark_pages.service.dev_credentials import LOOPBACK

    if others or token_algorithm != _DEV_ALGORITHM:
        raise InvalidInputError(
            "Cannot serve by --dev with a certificate, key or algorithm of yours: it makes its own.",
            hint="Leave --dev out, or --tls-cert, --tls-key, --no-tls, --token-key, --token-algorithm and "
            "--no-tokens.",
        )
    if host not in LOOPBACK:
        raise InvalidInputError(
            f"Cannot serve by --dev at {host}: its certificate is for this machine alone.",
            hint="Leave --host out, or give --tls-cert, --tls-key and --token-key in place of --dev.",
        )


class _DevFiles:
    """Credentials of `make_dev_credentials` in files of this user, which end with the process."""

    def __init__(self, audience: str, issuer: str | None) -> None:
        from spark_pages.service.dev_credentials import make_dev_credentials

        folder = tempfile.mkdtemp(prefix="spark_pages-dev-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        made = make_dev_credentials(audience, issuer)
        self.token = made.token
        self.certificate = Path(folder, "certificate.pem")
        self.private_key = Path(folder, "private_key.pem")
        self.secret = Path(folder, "token.secret")
        for path, data in (
            (self.certificate, made.certificate),
            (self.private_key, made.private_key),
            (self.secret, made.secret),
        ):
            path.write_bytes(data)


def _verifier(
    keys: list[Path], algorithm: str, audience: str, issuer: str | None, no_tokens: bool
) -> TokenVerifier | None:
    from spark_pages.service.tokens import ALGORITHMS, TokenVerifier

    if no_tokens == bool(keys):
        raise InvalidInputError(
            "Cannot serve without tokens: neither a key nor --no-tokens was given.",
            hint="Give --token-key, or --no-tokens.",
        )
    if no_tokens:
        return None
    for known in ALGORITHMS:
        if algorithm == known:
            return TokenVerifier([key.read_bytes() for key in keys], known, audience, issuer)
    raise InvalidInputError(
        f"Cannot use --token-algorithm {algorithm!r}: it is not known.",
        hint=f"Give one of {', '.join(ALGORITHMS)}.",
    )
