"""What a job that waits was asked to get, from the text that its scheduler printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusters.connectors.base import UnreadableError
from clusters.connectors.mig import own_shares
from clusters.connectors.sacct.tres import parse_tres


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedResources:
    """A shape of resources; 0 and "" where the text does not say."""

    gpus: int = 0  # whole GPUs, or slices of `gpu_share` each
    gpu_model: str = ""
    mig_profile: str = ""
    gpu_share: tuple[int, int] = (1, 1)
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    billing: int = 0


def read(requested: str, shares: Mapping[str, object]) -> RequestedResources:
    """Reads Slurm's list, `cpu=8,mem=64G,gres/gpu:a100=2`, by the cluster's own shares of MIG slices and shards.

    What cannot be read says nothing: it is never billed.
    """
    try:
        resources = parse_tres(requested, own_shares(shares, "shares"))
    except UnreadableError:
        return RequestedResources()
    return RequestedResources(
        gpus=resources.gpus,
        gpu_model=resources.gpu_model,
        mig_profile=resources.mig_profile,
        gpu_share=resources.gpu_share,
        cpu_milli=1000 * (resources.cpus or 0),
        memory_mib=resources.memory_mib,
        billing=resources.billing,
    )
