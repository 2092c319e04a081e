"""TOML tables read key by key, so that every mistake of a file is reported at once, each in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from portal.config_file.toml_values import WrongValue, kind_of
from portal.excerpt import quoted
from portal.sentences import sentence

V = TypeVar("V")


class ConfigError(Exception):
    """A file cannot be applied; `sentences` say all that is wrong with it. Nothing was changed."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences
        super().__init__("\n".join(sentences))


@dataclass(slots=True)
class Table:
    """One table of the file. Each method takes a key; what is wrong with its value goes to `errors`."""

    name: str  # as people would point at it: 'tenant "vision-lab"'
    data: dict[str, Any]
    errors: list[str]
    keys: list[str] = field(default_factory=list)  # that may stand in it, as they were read
    outer: Table | None = None

    def wrong(self, key: str, text: str) -> None:
        self.errors.append(f"{self.name}: {key} {text}")

    def has(self, key: str) -> bool:
        self.keys.append(key)
        return key in self.data

    def value(self, key: str, read: Callable[[Any], V]) -> V | None:
        """As `read` reads it; None where it is not there or is refused."""
        if not self.has(key):
            return None
        try:
            return read(self.data[key])
        except WrongValue as error:
            self.wrong(key, sentence(error))
            return None

    def table(self, key: str, name: str = "") -> Table:
        """A table within; an empty one where there is none. `name`, where it has one of its own."""
        value = self.data.get(key, {})
        if self.has(key) and not isinstance(value, dict):
            self.wrong(key, f"is {kind_of(value)}; write a table.")
            value = {}
        return Table(name or f"{self.name}, {key}", value, self.errors, outer=self)

    def tables(self, key: str, name: Callable[[int, Mapping[str, Any]], str]) -> list[Table]:
        """A list of tables; `name` says how to point at each, by its place from 1 and its content."""
        if not self.has(key):
            return []
        value = self.data[key]
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self.wrong(key, f"is {kind_of(value)}; write a list of tables.")
            return []
        return [
            Table(name(place, data), data, self.errors, outer=self) for place, data in enumerate(value, 1)
        ]

    def refuse_other_keys(self) -> None:
        """Refuse the keys that nothing has read."""
        for key in self.data:
            if key not in self.keys:
                allowed = ", ".join(sorted(set(self.keys)))
                self.errors.append(f"{self.name}: there is no key {quoted(key)}; allowed: {allowed}.")
