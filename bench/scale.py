"""How large the works are."""

from __future__ import annotations

from dataclasses import dataclass

QUICK = 10


@dataclass(frozen=True, slots=True)
class Scale:
    """Full, or so many times smaller in a single round to see that everything runs."""

    part: int = 1

    @property
    def is_full(self) -> bool:
        return self.part == 1

    def of(self, full: int) -> int:
        return max(full // self.part, 1)

    @property
    def rounds(self) -> int:
        return 3 if self.is_full else 1
