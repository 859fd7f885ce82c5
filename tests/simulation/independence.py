"""Requests of which nobody else can tell when they are made: a complete search tries nothing before them.

What a process may touch is declared by its `Footprint`, and held against every request that it makes. Two
requests of different processes are independent if both orders lead to the same world. A request is *alone*
if it is independent of whatever others may still ask for. Then every schedule can be put in another order, in
which that request comes first, with the same outcome of each request; so only its outcomes are tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from re import Pattern
from re import compile as compiled
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.actor import Actor
    from tests.simulation.process import Parked
    from tests.simulation.world import World

SLOTS = compiled(r"_log/\d{20}\.avro")
NAMED_BY_DIGEST = compiled(r"pages/.*|_log/(parts|segments|stats|catalog|checkpoints)/.*")
"""Objects that nobody asks for before something names them."""
ALL = compiled(".*")
NONE = compiled("(?!)")


@dataclass(frozen=True)
class Footprint:
    """Keys that a process may touch.

    Attributes
    ----------
    makes
        Where it may put an object, or create one, if there is none.
    changes
        Where it may delete or overwrite what is there. Who lists says `ALL`, as who deletes orphans does.
    """

    makes: Pattern[str] = ALL
    changes: Pattern[str] = ALL


ANYTHING = Footprint()


def check_footprint(world: World, actor: Actor, parked: Parked) -> None:
    """A request is one of those that its process has declared.

    Raises
    ------
    AssertionError
        If not: then what `is_alone` says of the requests of others is wrong.
    """
    key, footprint = parked.key, actor.spec.footprint
    if footprint is ANYTHING:
        return
    is_there = key in world.objects
    if parked.kind == "list":
        assert footprint.changes is ALL, f"{actor.name} lists"
    elif parked.kind in ("put", "delete"):
        assert matches(footprint.changes if is_there else footprint.makes, key), f"{actor.name} changes {key}"
    elif parked.kind == "create":
        assert is_there or matches(footprint.makes, key), f"{actor.name} makes {key}"
    elif parked.kind == "get" and not is_there and matches(NAMED_BY_DIGEST, key):
        may_miss = key in world.gone or matches(footprint.makes, key)
        assert may_miss, f"{actor.name} asks for {key} before there is any"


def is_alone(world: World, actor: Actor, parked: Parked) -> bool:
    """Whether nothing that others may still do changes what becomes of the request, nor the other way round.

    - Time that passes for a process is its own.
    - What is there can be read at any time if nobody may delete or overwrite it; that nothing is there, if
      nobody may make it.
    - A create where something stands is refused, whatever stands there, if nobody may delete it.
    - A new object that is named by its digest is not asked for by others yet, see `NAMED_BY_DIGEST`; that it
      is there matters only to who lists or deletes.
    """
    kind, key = parked.kind, parked.key
    if kind == "stamps":
        return all(is_alone(world, actor, replace(parked, kind="get", key=each)) for each in key.split())
    if len(actor.node.parked) > 1:
        return False  # threads of one process share what it knows
    if kind == "sleep":
        return True
    is_there = key in world.objects
    if kind == "put":
        is_independent = not is_there and matches(NAMED_BY_DIGEST, key)
    else:
        is_independent = kind == "get" or (kind == "create" and is_there)
    if not is_independent or any(late.key == key for late in world.late):
        return False
    others = [other.spec.footprint for other in world.actors if other is not actor and other.node.parked]
    if not is_there and any(matches(other.makes, key) for other in others):
        return False
    return not (is_there or kind == "put") or not any(matches(other.changes, key) for other in others)


@lru_cache(maxsize=100_000)
def matches(pattern: Pattern[str], key: str) -> bool:
    """Whether the whole key is such a one."""
    return pattern.fullmatch(key) is not None
