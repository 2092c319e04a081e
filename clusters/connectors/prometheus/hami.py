"""HAMi's vGPUs: what part of its GPU each of them is.

By HAMi's published definitions (docs/config.md and pkg/device/nvidia/device.go of Project-HAMi/HAMi), a container
requests a number of vGPUs as `nvidia.com/gpu`, and of each of them `nvidia.com/gpucores`, percent of one GPU's cores,
and `nvidia.com/gpumem`, MiB, else `nvidia.com/gpumem-percentage`. Without either of memory a vGPU has all of it;
without cores it may use what others leave. 0 is as if it were not requested. Not yet seen from a live source.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from clusters.connectors.mig import Share, UnknownShareError
from clusters.connectors.prometheus.options import Hami
from clusters.connectors.prometheus.responses import Labels, whole
from portal.excerpt import excerpt, quoted

VGPUS = "nvidia_com_gpu"  # as kube-state-metrics spells them, like those below
CORES = "nvidia_com_gpucores"
MEMORY = "nvidia_com_gpumem"
MEMORY_PERCENTAGE = "nvidia_com_gpumem_percentage"
OF_VGPUS: Mapping[str, str] = {
    CORES: "nvidia.com/gpucores",
    MEMORY: "nvidia.com/gpumem",
    MEMORY_PERCENTAGE: "nvidia.com/gpumem-percentage",
}
"""What is requested of each vGPU, and as people write it."""

NODE_MEMORY = "label_nvidia_com_gpu_memory"  # MiB of one GPU
NODE_GPUS = "label_nvidia_com_gpu_count"  # the capacity of a node is its vGPUs, ten a GPU by default
PERCENT = 100


def vgpu_share(requests: Mapping[str, Decimal], node: Labels, by: Hami) -> Share:
    """Of one vGPU, exactly. Raises `UnknownShareError` where the part that counts cannot be told."""
    parts = {name: value for name, value in requests.items() if value != 0}
    cores = _part(CORES, parts[CORES], PERCENT) if CORES in parts and by is not Hami.MEMORY else None
    if by is Hami.CORES and cores is not None:
        return cores.as_integer_ratio()
    memory = Fraction(1)
    if MEMORY in parts:
        memory = _part(MEMORY, parts[MEMORY], _positive(node.get(NODE_MEMORY, "")))
    elif MEMORY_PERCENTAGE in parts:
        memory = _part(MEMORY_PERCENTAGE, parts[MEMORY_PERCENTAGE], PERCENT)
    return max(memory, cores or 0).as_integer_ratio()


def gpus_of(node: Labels) -> int:
    """How many GPUs a node has; 0 where it does not say."""
    return _positive(node.get(NODE_GPUS, ""))


def written(requests: Mapping[str, Decimal]) -> str:
    """As it is listed behind the number of vGPUs."""
    return "".join(f",{OF_VGPUS[name]}={excerpt(value)}" for name, value in sorted(requests.items()))


def _part(name: str, value: Decimal, of: int) -> Fraction:
    part = whole(value)
    if not of:
        raise UnknownShareError("unknown-fraction", annotation=OF_VGPUS[name], text=quoted(str(value)))
    if part is None or not 0 < part <= of:
        raise UnknownShareError("impossible-fraction", annotation=OF_VGPUS[name], text=quoted(str(value)))
    return Fraction(part, of)


def _positive(text: str) -> int:
    """0 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
