"""Check what ``spark-pages demo --json`` printed: one JSON document whose ``ok`` is true."""

import json
import sys
from pathlib import Path


def main(path: Path) -> str | None:
    """Return what is wrong with the document, or None."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        return f"{path.name}: expected one JSON document, found something else: {error}"
    if not isinstance(result, dict) or result.get("ok") is not True:
        return f"{path.name}: expected an object with `ok: true`, found: {json.dumps(result)[:2000]}"
    print("the demo says ok")
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
