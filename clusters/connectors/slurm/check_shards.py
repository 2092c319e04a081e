"""Test connection: can jobs that hold shards of GPUs be billed? Nodes are compared with the operator's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from clusters.connectors.base import UnreadableError
from clusters.connectors.mig import OwnShares
from clusters.connectors.shards import shard_type
from clusters.connectors.slurm.check_access import CheckSession
from portal.excerpt import excerpt

_SHOWN = 5  # nodes that a sentence names


def shards(session: CheckSession, subject: str) -> None:
    """Nothing where no node has shards."""
    nodes = {name: counts for name, counts in session.shards.items() if counts[0]}
    if not nodes:
        return
    if not any(name.split(":")[0] == "shard" for name in session.recorded):
        session.fail(
            subject,
            f"{_listed(nodes)} list shards of GPUs and Slurm does not record them, so their usage is lost for good, "
            "job by job, until it does.",
            "AccountingStorageTRES=…,gres/shard  # in slurm.conf; then restart slurmctld",
        )
        return
    unnamed, parts = _parts(nodes, session.shares)
    of_all = {name: part * nodes[name][0] for name, part in parts.items()}
    if unnamed:
        session.fail(
            subject,
            f"Jobs that hold shards of {_listed(unnamed)} go to quarantine: the cluster does not say how many a GPU "
            "has there.",
            'shares = { a100 = { shard = "1/4" } }  # of the cluster: four to a GPU',
        )
    elif many := [name for name, gpus in of_all.items() if gpus > nodes[name][1]]:
        session.fail(
            subject,
            f"{_counts(many[0], nodes)}, and by the shares of the cluster its shards are "
            f"{of_all[many[0]]} GPUs: too much is billed on {_listed(many)}.",
            f'shares = {{ a100 = {{ "shard@{many[0]}" = "1/4" }} }}  # as gres.conf has it',
        )
    elif few := [name for name, gpus in of_all.items() if gpus < nodes[name][1]]:
        session.warn(
            subject,
            f"{_counts(few[0], nodes)}, and by the shares of the cluster its shards are {of_all[few[0]]} GPUs. "
            f"That is right only if gres.conf gives shards to so many of the GPUs of {_listed(few)}.",
        )
    else:
        session.ok(subject, f"The shards of {_listed(nodes)} are all of their GPUs.")


def _parts(nodes: Mapping[str, tuple[int, int]], shares: OwnShares) -> tuple[list[str], dict[str, Fraction]]:
    """Nodes of whose shards the rows say nothing, or two things; and of the others, what one is of a GPU."""
    unnamed: list[str] = []
    parts: dict[str, Fraction] = {}
    for name in nodes:
        try:
            parts[name] = Fraction(*shard_type("", shares, name).share)
        except UnreadableError:
            unnamed.append(name)
    return unnamed, parts


def _counts(name: str, nodes: Mapping[str, tuple[int, int]]) -> str:
    shards, gpus = nodes[name]
    return f"{excerpt(name)} lists {shards} shards and {gpus} GPUs"


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    shown = ", ".join(excerpt(name) for name in ordered[:_SHOWN])
    return f"{shown} and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else shown
