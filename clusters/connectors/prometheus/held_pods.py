"""Pods whose use is measured: when they held what they request, and how far what they used lies beyond it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clusters.connectors.base import UsageFact
from clusters.connectors.prometheus.coverage import HOUR, MINUTE
from clusters.connectors.prometheus.pod_requests import MIB


@dataclass(slots=True)
class Used:
    """By one pod in one hour, as far as it was measured. `span`: milliseconds between the samples of its CPU."""

    core_micros: int | None = None
    span: int = 0
    byte_minutes: int | None = None
    minutes: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A pod and what it requests, by that of its records which has it. Epoch seconds."""

    uid: str
    fact: UsageFact
    started: int
    until: int

    def within(self, hour: int) -> int:
        """Seconds of the hour."""
        since = max(hour, self.started)
        until = min(hour + HOUR, self.until)
        return until - since if until > since else 0

    def cpu_beyond(self, used: Used, held: int) -> tuple[int, int]:
        """Core-microseconds, below 0 where it requested more in the seconds that it held; and those that it requested
        in a minute.
        """
        request = self.fact.cpu_milli
        return (used.core_micros or 0) - request * max(used.span, held * 1000), request * 60_000

    def memory_beyond(self, used: Used, held: int) -> tuple[int, int]:
        """Byte-seconds likewise. Minutes in which it began and ended count for as much of them as it held."""
        request = self.fact.memory_mib * MIB
        total = (used.byte_minutes or 0) * MINUTE
        if used.minutes * MINUTE > held:
            total = total * held // (used.minutes * MINUTE)
        return total - request * held, request * MINUTE


def pods_of(facts: Iterable[UsageFact]) -> dict[str, list[Held]]:
    """By namespace and name, in the order in which they began."""
    best: dict[str, UsageFact] = {}
    for fact in facts:
        uid = fact.source_key.partition("/")[0]
        other = best.get(uid)
        if fact.started is not None and (
            other is None or (other.cpu_milli, other.memory_mib) < (fact.cpu_milli, fact.memory_mib)
        ):
            best[uid] = fact
    pods: dict[str, list[Held]] = {}
    for uid, fact in sorted(best.items(), key=lambda one: (one[1].started or 0, one[1].source_key)):
        until = fact.ended if fact.ended is not None else fact.seen_until
        started = fact.started or 0
        pods.setdefault(fact.job_id, []).append(Held(uid, fact, started, started if until is None else until))
    return pods
