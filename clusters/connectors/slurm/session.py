"""One visit to a Slurm that is being examined: what it has answered so far, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from clusters.connectors.findings import Finding, Findings

if TYPE_CHECKING:
    from clusters.connectors.slurm.rest import SlurmRest

Params = Mapping[str, str]


@dataclass
class CheckSession(Findings):
    rest: SlurmRest
    now: int
    cluster: str
    findings: list[Finding] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)  # "slurmrestd", "slurmctld", "slurmdbd", "the user"
    level: str = ""  # AdminLevel of the token's user
    models: dict[str, int] = field(default_factory=dict)  # GPUs of each model that nodes have
    rows: list[dict[str, Any]] = field(default_factory=list)
    params: Params = field(default_factory=dict)  # the question that gave the rows

    began: int = field(default_factory=monotonic_ns)

    @property
    def present(self) -> int:
        """Our clock now, in epoch seconds: a slow answer must not look like a wrong clock."""
        return self.now + (monotonic_ns() - self.began) // 10**9

    @property
    def user(self) -> str:
        return self.rest.login.user

    @property
    def operates(self) -> bool:
        return self.level in {"Operator", "Administrator"}
