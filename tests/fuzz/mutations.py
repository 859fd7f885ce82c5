"""Small random changes of bytes, as a `random.Random` draws them. What atheris does, but blind."""

from __future__ import annotations

import random

_TELLING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xff" * 8)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four changes: bits flipped, bytes set, cut out, doubled, made telling ones."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if not made:
            break
        place = chance.randrange(len(made))
        match chance.randrange(6):
            case 0:
                made[place] ^= 1 << chance.randrange(8)
            case 1:
                made[place] = chance.randrange(256)
            case 2:
                del made[place : place + chance.randint(1, 16)]
            case 3:
                made[place:place] = made[place : place + chance.randint(1, 64)]
            case 4:
                telling = chance.choice(_TELLING)
                made[place : place + len(telling)] = telling
            case _:
                del made[place:]
    return bytes(made)
