"""Reading typed values from an environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from portal.excerpt import quoted


class SettingError(Exception):
    """A value in the environment cannot be meant; the message names it and says what would do."""


@dataclass(frozen=True)
class Variables:
    """Typed reading of one environment; an empty value counts as absent."""

    environ: Mapping[str, str]

    def text(self, name: str, default: str) -> str:
        return self.environ.get(name, "").strip() or default

    def words(self, name: str, default: str = "") -> list[str]:
        """Comma-separated."""
        return [word.strip() for word in self.text(name, default).split(",") if word.strip()]

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name, "yes" if default else "no").lower()
        if value in {"1", "yes", "true", "on"}:
            return True
        if value in {"0", "no", "false", "off"}:
            return False
        raise SettingError(f"{name} is {quoted(value)}; say yes or no.")

    def number(self, name: str, default: int) -> int:
        value = self.text(name, str(default))
        if not value.isdecimal():
            raise SettingError(f"{name} is {quoted(value)}; a whole number is needed.")
        return int(value)
