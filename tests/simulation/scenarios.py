"""The stores, processes and faults that are simulated."""

from __future__ import annotations

from re import compile as compiled

from spark_pages.format.names import HINT_KEY
from tests.simulation.deleting import blanks, deletes, restores_rows, truncates
from tests.simulation.dropping import drops, purges, undrops
from tests.simulation.independence import NAMED_BY_DIGEST, NONE, SLOTS, Footprint
from tests.simulation.keeping import leases, tags
from tests.simulation.process import Process, ProcessSpec
from tests.simulation.programs import (
    appends,
    checkpoints,
    compacts,
    counts,
    create_store,
    creates_table,
    one_after_another,
    plans_and_executes,
    reads,
    relies_on_counter,
    resumes,
    travels,
    vacuums,
)
from tests.simulation.referring import (
    drops_referenced,
    drops_referring,
    looks_for_references,
    refers,
    restores,
)
from tests.simulation.world import ON_A_DISK, Scenario


def _used_store(process: Process) -> None:
    """Some history, a checkpoint in the middle of it, named by later commits."""
    create_store(process)
    process.log.refresh()
    appends()(process)
    counts()(process)
    process.log.checkpoint()
    appends(inline=True)(process)
    counts()(process)


def _two_checkpoints(process: Process) -> None:
    """The smallest store of which one vacuum deletes slots, a whole checkpoint, and a page file."""
    create_store(process)
    process.log.refresh()
    process.log.checkpoint()
    counts()(process)
    process.log.checkpoint()
    appends(inline=True)(process)


def _cared_for(process: Process) -> None:
    """A store whose writers look after it beside their commits."""
    create_store(process, checkpoint_commits="2", log_compaction_commits="2")
    process.log.refresh()


def _long_log(process: Process) -> None:
    """So many versions that some of them can be compacted."""
    create_store(process, checkpoint_commits="0", log_compaction_commits="0")
    process.log.refresh()
    appends(17, inline=True)(process)


def _store_of_turns(process: Process) -> None:
    """A store whose writers let each other commit one after the other."""
    create_store(process, commit_turns="fair")
    process.log.refresh()


def _behind_a_checkpoint(process: Process) -> None:
    """A checkpoint that commits name, and versions after it that are read from it alone."""
    create_store(process)
    process.log.refresh()
    appends()(process)
    process.log.checkpoint()
    counts()(process)
    appends(inline=True)(process)
    counts()(process)


def _dropped_table(process: Process) -> None:
    """A table that has been dropped, in version 4, and can come back."""
    create_store(process)
    process.log.refresh()
    appends()(process)
    counts()(process)
    process.log.checkpoint()
    appends()(process)
    drops()(process)
    counts()(process)


def _dropped_reference(process: Process) -> None:
    """A table with a foreign key in version 2, which has been dropped in version 3."""
    create_store(process)
    process.log.refresh()
    counts()(process)
    refers()(process)
    drops_referring()(process)
    process.log.checkpoint()


def _store_without_checkpoint(process: Process) -> None:
    """Some history, and no checkpoint that any commit names."""
    create_store(process)
    process.log.refresh()
    appends(inline=True)(process)
    counts()(process)


def _deleted_rows(process: Process) -> None:
    """Rows of versions 1 and 3, of which the last one of version 1 is deleted in version 2."""
    create_store(process, checkpoint_commits="0", log_compaction_commits="0")
    process.log.refresh()
    appends(inline=True)(process)
    deletes()(process)
    appends(inline=True)(process)
    process.log.checkpoint()


_COMMITS_ONLY = Footprint(makes=SLOTS, changes=NONE)
_SLOTS_AND_PAGE_FILES = compiled(rf"{SLOTS.pattern}|pages/.*")
_NO_COMMITS = Footprint(makes=compiled(f"{HINT_KEY}|{NAMED_BY_DIGEST.pattern}"), changes=compiled(HINT_KEY))

RACE = Scenario(
    "race",
    create_store,
    (
        ProcessSpec("appender", appends()),
        ProcessSpec("counter 1", counts()),
        ProcessSpec("counter 2", counts(), clock_us=1_000),
        ProcessSpec("reader", reads(2), opened=False),
        ProcessSpec("maintenance", checkpoints()),
    ),
)
"""Writers that race for slots and for one page."""

DOUBT = Scenario(
    "doubt",
    create_store,
    (
        ProcessSpec("appender 1", appends(2, exactly_once=True, tries=2), restarts=1),
        ProcessSpec("appender 2", resumes(appends()), clock_us=1_000_000),
        ProcessSpec("reader", reads(2, chain=(1, 2)), opened=False, reads_backwards=True),
    ),
    max_faults=3,
)
"""Writers that ask again: exactly-once pairs over a crash, and unknown outcomes that are resumed."""

DISK = Scenario(
    "disk",
    create_store,
    (
        ProcessSpec("appender 1", appends(2)),
        ProcessSpec("appender 2", appends()),
        ProcessSpec("maintenance", checkpoints()),
    ),
    faults=ON_A_DISK | {"fails", "crash", "time is up"},
)
"""A local disk, and the power may go."""

NAMES = Scenario(
    "names",
    create_store,
    (
        ProcessSpec("creator 1", creates_table("t")),
        ProcessSpec("creator 2", creates_table("t")),
        ProcessSpec("counter", counts()),
        ProcessSpec("relying", relies_on_counter()),
    ),
)
"""Two tables of one name, and a serializable transaction."""

THREADS = Scenario(
    "threads",
    create_store,
    (
        ProcessSpec("many", appends(), threads=(counts(), counts(), appends(inline=True, exactly_once=True))),
        ProcessSpec("one", counts()),
        ProcessSpec("reader", reads(2), opened=False),
    ),
)
"""Threads of one process that share commits, beside another process."""

TURNS = Scenario(
    "turns",
    _store_of_turns,
    (
        ProcessSpec("appender", appends(3, inline=True), request_s=0.02),
        ProcessSpec("counter 1", counts(2), request_s=0.02),
        ProcessSpec("counter 2", counts(), threads=(appends(2, inline=True),), request_s=0.02),
        ProcessSpec("relying", relies_on_counter(), request_s=0.02),
        ProcessSpec("maintenance", checkpoints()),
    ),
    usual_steps=45,
)
"""Writers that let others commit first, and read what they commit."""

UPKEEP = Scenario(
    "upkeep",
    _cared_for,
    (
        ProcessSpec("appender", appends(3, inline=True)),
        ProcessSpec("counter", counts(2)),
        ProcessSpec("reader", reads(2), opened=False),
        ProcessSpec("traveller", travels((0, 1)), opened=False),
    ),
)
"""Checkpoints and log compaction beside commits, by whoever commits."""

COMPACTION = Scenario(
    "compaction",
    _long_log,
    (
        ProcessSpec("appender", appends(inline=True)),
        ProcessSpec("compactor", compacts()),
        ProcessSpec("reader", reads(2), opened=False),
        ProcessSpec("traveller", travels((16, 3)), opened=False),
    ),
    usual_steps=90,
)
"""A log that is compacted while it is read."""

VACUUM = Scenario(
    "vacuum",
    _used_store,
    (
        ProcessSpec("appender", appends(tries=2)),
        ProcessSpec("counter", counts()),
        ProcessSpec("reader", reads(2), opened=False),
        ProcessSpec("vacuum", vacuums()),
    ),
    usual_steps=55,
)
"""A vacuum that keeps one version, while others write and read."""

RETENTION = Scenario(
    "retention",
    _used_store,
    (
        ProcessSpec("appender", appends()),
        ProcessSpec("late reader", reads(2)),
        ProcessSpec("traveller", travels((3, 1)), opened=False),
        ProcessSpec("vacuum 1", vacuums(2, orphans=True)),
        ProcessSpec("vacuum 2", vacuums()),
        ProcessSpec("maintenance", checkpoints()),
    ),
    usual_steps=140,
)
"""Two vacuums and a checkpoint at once."""

FIRST_CHECKPOINTS = Scenario(
    "first checkpoints",
    _store_without_checkpoint,
    (
        ProcessSpec("appender", appends(2, inline=True)),
        ProcessSpec("maintenance", checkpoints(2)),
        ProcessSpec("reader", reads(2), opened=False),
        ProcessSpec("vacuum", vacuums(orphans=True)),
    ),
    usual_steps=70,
)
"""The first checkpoints of a store, while the commits that follow do not know of them yet."""

KEPT = Scenario(
    "kept",
    _behind_a_checkpoint,
    (
        ProcessSpec("appender", appends(inline=True)),
        ProcessSpec("tagger", tags()),
        ProcessSpec("lease holder", leases(back=1)),
        ProcessSpec("vacuum 1", plans_and_executes()),
        ProcessSpec("vacuum 2", plans_and_executes()),
        ProcessSpec("maintenance", checkpoints()),
    ),
    usual_steps=110,
    outages=True,
)
"""Versions that are held while two vacuums want to pass them, and checkpoints that cannot be written."""

DROPPED = Scenario(
    "dropped",
    _dropped_table,
    (
        ProcessSpec("undropper", undrops()),
        ProcessSpec("vacuum 1", purges(dropped=4)),
        ProcessSpec("vacuum 2", purges(dropped=4)),
        ProcessSpec("counter", counts()),
        ProcessSpec("traveller", travels((3, 1)), opened=False),
        ProcessSpec("maintenance", checkpoints()),
    ),
    usual_steps=195,
)
"""A dropped table comes back or is given up, while versions that have it are read."""

DELETED = Scenario(
    "deleted",
    _deleted_rows,
    (
        ProcessSpec("deleter 1", deletes()),
        ProcessSpec("deleter 2", deletes()),
        ProcessSpec("purger", one_after_another(blanks(), blanks())),
        ProcessSpec("restorer", restores_rows(1)),
        ProcessSpec("appender", appends(inline=True)),
        ProcessSpec("truncater", truncates()),
        ProcessSpec("reader", reads(2, chain=(1, 0)), opened=False),
        ProcessSpec("maintenance", one_after_another(checkpoints(), vacuums(versions=4))),
    ),
    usual_steps=200,
)
"""Rows die, are blanked, and live again, while others append and the table is emptied."""

REFERRED = Scenario(
    "referred",
    _dropped_reference,
    (
        ProcessSpec("restorer", restores(version=2)),
        ProcessSpec("another", restores(version=2)),
        ProcessSpec("dropper", drops_referenced()),
        ProcessSpec("reader", looks_for_references(), opened=False),
        ProcessSpec("maintenance", checkpoints()),
    ),
    usual_steps=60,
)
"""A restore brings back a table with a foreign key, while what it refers to is dropped."""

CLEANED = Scenario(
    "cleaned",
    _used_store,
    (
        ProcessSpec("hasty", resumes(appends(inline=True)), patience_s=0),
        ProcessSpec("patient", appends()),
        ProcessSpec("counter", counts()),
        ProcessSpec("vacuum", vacuums()),
    ),
    usual_steps=65,
)
"""A vacuum cleans the slot of a commit whose writer does not know yet that it landed."""

TWO_WRITERS = Scenario(
    "two writers",
    create_store,
    (
        ProcessSpec("counter", counts(tries=1), footprint=_COMMITS_ONLY),
        ProcessSpec("appender", appends(inline=True), footprint=_COMMITS_ONLY),
        ProcessSpec("maintenance", checkpoints(), footprint=_NO_COMMITS),
    ),
    max_faults=1,
)
"""Small enough to go through all of it."""

TWO_WRITERS_AND_VACUUM = Scenario(
    "two writers and vacuum",
    _two_checkpoints,
    (
        ProcessSpec("counter", counts(tries=1), footprint=_COMMITS_ONLY),
        ProcessSpec("appender", appends(inline=True), footprint=_COMMITS_ONLY),
        ProcessSpec("vacuum", plans_and_executes()),
    ),
    max_faults=1,
)
"""The same with a vacuum: a plan that writes a checkpoint, and its execution."""

TWO_WRITERS_AND_ORPHANS = Scenario(
    "two writers and orphans",
    _two_checkpoints,
    (
        ProcessSpec("counter", counts(tries=1), footprint=_COMMITS_ONLY),
        ProcessSpec("appender", appends(), footprint=Footprint(makes=_SLOTS_AND_PAGE_FILES, changes=NONE)),
        ProcessSpec("vacuum", plans_and_executes(orphans=True)),
    ),
    max_faults=0,
)
"""A page file that no commit names yet, and a vacuum that deletes such."""

RANDOM = (
    RACE,
    DOUBT,
    DISK,
    NAMES,
    THREADS,
    TURNS,
    DELETED,
    UPKEEP,
    COMPACTION,
    VACUUM,
    RETENTION,
    FIRST_CHECKPOINTS,
    KEPT,
    DROPPED,
    REFERRED,
    CLEANED,
)
"""Those of which schedules are drawn."""

EXHAUSTIVE = (TWO_WRITERS, TWO_WRITERS_AND_VACUUM, TWO_WRITERS_AND_ORPHANS)
"""Those that are gone through completely."""

SCENARIOS = {each.name: each for each in (*RANDOM, *EXHAUSTIVE)}
