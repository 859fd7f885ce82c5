"""The verb ``doctor``: can this machine and that storage be trusted with a store?"""

from __future__ import annotations

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Profile, Url, options_of


def doctor(
    url: Url,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Whether this storage and this machine can be trusted with a store.

    Races 32 creators for one object, and looks at clocks, packages and Java. Writes some small objects below
    _doctor/ and removes them. Exit code 1 where a check fails.
    """
    from spark_pages.doctor.examination import examine

    found = examine(url, options_of(url, profile))
    if json:
        checks = [
            {"check": c.name, "status": c.status.value, "found": c.found, "remedy": c.remedy}
            for c in found.checks
        ]
        output.print_json({"url": found.url, "ok": found.ok, "checks": checks})
    else:
        rows = [[c.name, c.status.value, c.found, c.remedy] for c in found.checks]
        output.print_rows(
            f"Doctor at {found.url}", ["check", "status", "found", "what to do"], rows, whole=True
        )
    output.exit_unless(found.ok)
