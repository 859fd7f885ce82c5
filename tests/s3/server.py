"""A real S3 server for tests: versitygw over a folder, on a port of its own of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Any
from uuid import uuid4

VERSION = "v1.8.0"
TOOLS = Path(__file__).resolve().parents[2] / ".tools" / "bin"
INSTALL = f"GOBIN=$PWD/.tools/bin go install github.com/versity/versitygw/cmd/versitygw@{VERSION}"
MISSING = f"versitygw is not installed; `make versitygw` does it, which is: {INSTALL}"

ACCESS_KEY_ID = "CANARY-ACCESS-KEY-ID"
SECRET_ACCESS_KEY = "CANARY-SECRET-ACCESS-KEY"
BUCKET = "bucket"
_START_S = 20.0


def server_binary() -> str | None:
    """Where versitygw is: in the tools of the checkout, else on the path."""
    return shutil.which("versitygw", path=str(TOOLS)) or shutil.which("versitygw")


class S3Server:
    """One running server with one bucket; ends with its ``with`` block."""

    def __init__(self, folder: Path) -> None:
        binary = server_binary()
        if binary is None:
            raise FileNotFoundError(MISSING)
        self.folder = folder / "objects" / BUCKET
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self._log = (folder / "server.log").open("wb")
        command = [binary, "--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive", "posix"]
        self._process = subprocess.Popen(
            [*command, str(folder / "objects")],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={
                "PATH": os.environ.get("PATH", ""),
                "ROOT_ACCESS_KEY_ID": ACCESS_KEY_ID,
                "ROOT_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            },
        )
        wait_until_it_answers(self._process, self.port, _START_S, self._log.name)

    def __enter__(self) -> S3Server:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()  # asked politely it waits for connections that clients keep open
        self._process.wait()
        self._log.close()

    def options(self) -> dict[str, Any]:
        """Storage options that lead to this server."""
        return options_for(self.port)

    def folder_of(self, url: str) -> str:
        """Where the server keeps the objects of a store."""
        return str(self.folder / url.removeprefix(f"s3://{BUCKET}/"))


def options_for(
    port: int, timeout: str | None = None, retries: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Storage options of a server on a port of this machine, or of a proxy in front of it."""
    client: dict[str, Any] = {"allow_http": True}
    if timeout is not None:
        client["timeout"] = timeout
    options: dict[str, Any] = {
        "access_key_id": ACCESS_KEY_ID,
        "secret_access_key": SECRET_ACCESS_KEY,
        "region": "us-east-1",
        "endpoint": f"http://127.0.0.1:{port}",
        "client_options": client,
    }
    if retries is not None:
        options["retry_config"] = retries
    return options


def new_url() -> str:
    """The address of a store that no other test has."""
    return f"s3://{BUCKET}/{uuid4().hex}/store"


def wait_until_it_answers(server: subprocess.Popen[bytes], port: int, within_s: float, log: str) -> None:
    """A server of this machine, just started, takes connections."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"{server.args} ended with {server.returncode}; see {log}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"{server.args} did not answer within {within_s} s; see {log}")


def free_port() -> int:
    """Find a port for a server, below those that the kernel gives to connections of other tests meanwhile."""
    while True:
        port = SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
