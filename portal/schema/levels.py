"""Levels of the schema: whose programs may run over which database.

Each release that changes the schema adds a level. Programs of one level also run over databases of later ones, as far
down as these say in `programs_from`. So pages and workers of the release before go on while `migrate` runs, and until
they are replaced. What only they need is removed by a later release, whose level then says so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """A schema of a release, by a number that grows."""

    number: int
    programs_from: int
    """The lowest level whose programs work over it."""


LEVELS = (
    Level(1, programs_from=1),  # 1.0.0
    Level(2, programs_from=1),  # until a month is dropped, whose proof programs of level 1 would lose
)
CURRENT = LEVELS[-1]
