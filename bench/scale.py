"""How large the works are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Full, or ten times smaller in a single round to see that everything runs."""

    quick: bool

    def of(self, full: int) -> int:
        return full // 10 if self.quick else full

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 3
