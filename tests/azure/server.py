"""Azure Blob Storage for tests: Azurite, the emulator of its makers, on a port of its own of this machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import time
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.s3.server import free_port

FOLDER = Path(__file__).resolve().parents[2] / ".tools" / "azurite"
MISSING = "Azurite is not installed; `make azurite` does it (needs Node)"

ACCOUNT = "canaryaccount"
ACCOUNT_KEY = base64.b64encode(b"CANARY-ACCOUNT-KEY" * 3).decode()
CONTAINER = "container"
_START_S = 30.0


def server_binary() -> str | None:
    """Where Azurite is: in the tools of the checkout, else on the path; None where it or Node is missing."""
    if shutil.which("node") is None:
        return None
    inside = FOLDER / "node_modules" / ".bin"
    return shutil.which("azurite-blob", path=str(inside)) or shutil.which("azurite-blob")


class AzureServer:
    """One running server with one container; ends with its ``with`` block."""

    def __init__(self, folder: Path) -> None:
        binary = server_binary()
        if binary is None:
            raise FileNotFoundError(MISSING)
        self.port = free_port()
        self._log = (folder / "server.log").open("wb")
        command = [binary, "--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--silent"]
        self._process = subprocess.Popen(
            [*command, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", ""), "AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"},
        )
        try:
            self._make_container()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> AzureServer:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def options(self) -> dict[str, Any]:
        """Storage options that lead to this server."""
        return {
            "account_name": ACCOUNT,
            "account_key": ACCOUNT_KEY,
            "endpoint": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "allow_http": True,
        }

    def _make_container(self) -> None:
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"Azurite ended with {self._process.returncode}; see {self._log.name}")
            try:
                status = _put_container(self.port)
            except ConnectionError:
                time.sleep(0.05)
                continue
            if status != 201:
                raise RuntimeError(f"Azurite answered a new container by {status}; see {self._log.name}")
            return
        raise TimeoutError(f"Azurite did not answer within {_START_S} s")


def new_url() -> str:
    """The address of a store that no other test has."""
    return f"az://{CONTAINER}/{uuid4().hex}/store"


def _put_container(port: int) -> int:
    """Ask for the container, signed by the account's key (Azure's "Shared Key"); gives the status."""
    told = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in told.items())]
    resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    text = "\n".join([*lines, resource]).encode()
    signature = base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), text, hashlib.sha256)).decode()
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        headers = {**told, "Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
        connection.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()
