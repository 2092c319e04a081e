"""Test connection: is this Slurm set up so that its usage can be billed? In sentences, with what mends each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clusters.connectors.base import ConnectorError
from clusters.connectors.findings import Finding, Level
from clusters.connectors.slurm import check_access as access
from clusters.connectors.slurm import check_usage as usage
from clusters.connectors.slurm.session import CheckSession

if TYPE_CHECKING:
    from clusters.connectors.slurm.rest import SlurmRest

__all__ = ["Finding", "Level", "examine"]

_CHECKS: tuple[tuple[str, tuple[str, ...], Callable[[CheckSession, str], None]], ...] = (
    ("Address", (), access.reach),
    ("Daemons", ("slurmrestd",), access.daemons),
    ("AdminLevel", ("slurmdbd",), access.rights),
    ("Cluster", ("slurmdbd",), access.clusters),
    ("AccountingStorageTRES", ("slurmdbd",), usage.tracked),
    ("Sample", ("slurmdbd",), usage.sample),
    ("PrivateData", ("slurmdbd",), usage.privacy),
    ("Canary", ("slurmdbd",), usage.canary),
    ("Clock", ("slurmdbd",), usage.clock),
    ("Acting", ("slurmdbd",), usage.acting),
)
"""Subject, who has to have answered before, and the check itself."""


def examine(rest: SlurmRest, *, now: int, cluster: str = "") -> list[Finding]:
    """All checks, in the order in which one mends. `now` is our clock in epoch seconds; `cluster` the Slurm
    cluster that the connection names, "" for whichever it answers for. Never raises: what cannot be checked
    is a finding too."""
    visit = CheckSession(rest, now, cluster)
    for subject, needs, check in _CHECKS:
        missing = [need for need in needs if need not in visit.answers]
        if missing:
            visit.warn(subject, f"Not checked, since {' and '.join(missing)} did not answer.")
            continue
        try:
            check(visit, subject)
        except ConnectorError as error:
            visit.fail(subject, str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            visit.fail(
                subject,
                f"The answer has another shape than any that this release was tried with ({type(error).__name__}): "
                "update ClusterTab, or report the versions above.",
            )
    return visit.findings
