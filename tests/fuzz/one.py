"""One fuzz job: `python -m tests.fuzz.one TARGET CORPUS [flags of libFuzzer]`. Needs atheris: `make fuzz`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["spark_pages", "fastavro"]):
    from tests.fuzz.targets import attempt


def main() -> None:
    """Run until the flags say so; an input that is a finding is left where they say."""
    name, *arguments = sys.argv[1:]
    atheris.Setup([sys.argv[0], *arguments], lambda data: attempt(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
