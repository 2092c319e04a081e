"""What a handler gets of a request that was found to be in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.state import State


@dataclass(frozen=True)
class Call:
    state: State
    params: Json  # in their types, without `expand`
    ids: tuple[str, ...]  # the objects of the path

    def fields(self, *names: str) -> Json:
        """Those of the parameters that the request has, for fields that are called the same."""
        return {name: unset(self.params[name]) for name in names if name in self.params}

    def get(self, name: str, default: Any = None) -> Any:
        return unset(self.params.get(name, default))


Handler = Callable[[Call], Json]


def unset(value: Any) -> Any:
    """An empty text is how a form says null."""
    return None if value == "" else value


def merged(metadata: Json | None, update: Json | str | None) -> Json:
    """Metadata after an update: names with an empty value go away, an empty text takes all away."""
    if update == "":
        return {}
    both = {**(metadata or {}), **(update if isinstance(update, dict) else {})}
    return {name: text for name, text in both.items() if text != ""}
