"""Who changed what, when, before and after: kept by database triggers, whoever made the change.

Below everything else and importing nothing of ours. `track` marks a model; `acting_as` names who
acts outside a web request (inside one, pghistory's middleware does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pghistory
from django.db.models import Model

M = TypeVar("M", bound=Model)


def track(*, exclude: Sequence[str] = ()) -> Callable[[type[M]], type[M]]:
    """Keep a row of history for every insert, update and delete of the model, raw SQL included.

    A change of `exclude`d columns alone writes none: those that the system moves by itself all day.
    """
    decorate: Callable[[type[M]], type[M]] = pghistory.track(
        pghistory.InsertEvent(),
        pghistory.UpdateEvent(),
        pghistory.DeleteEvent(),
        append_only=True,
        exclude=list(exclude),
    )
    return decorate


def acting_as(who: str, *, why: str = "") -> AbstractContextManager[Any]:
    """Attach the actor, and the reason where there is one, to all history written in the block."""
    return pghistory.context(who=who, why=why) if why else pghistory.context(who=who)
