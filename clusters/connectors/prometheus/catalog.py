"""The metrics that other exporters have, with their labels and units: queues of Kueue, Volcano and KAI, gauges of
netdata and Genv, and what DCGM says of each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType


class Preset(StrEnum):
    """Whose queues pods are in; or who counts instead, where there are no pods."""

    KUEUE = "kueue"
    VOLCANO = "volcano"
    KAI = "kai"
    NETDATA = "netdata"
    GENV = "genv"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeries:
    """A pod's queue is in the first of `labels` that it has. Bills come from pods; `gauge` is to compare with.

    `gauge` has one series or more of each queue, named by `name`; `per_gpu` of its units are one GPU.
    """

    labels: tuple[str, ...]
    gauge: str
    name: str
    by: str  # the labels by which its series add up; what else differs tells replicas
    where: str = ""
    per_gpu: int = 1
    mend: str  # what makes it exist


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledSeries:
    """A gauge of what each user holds at a host. Series that differ in one of `parts` add up; others are replicas.

    The host is in the first of `hosts` that there is. `always` stands while the exporter does, whoever uses GPUs.
    """

    metric: str
    always: str
    hosts: tuple[str, ...]
    user: str
    parts: tuple[str, ...]
    of_memory: bool  # in MiB of GPU memory; else in GPUs
    mend: str


QUEUES: Mapping[Preset, QueueSeries] = MappingProxyType(
    {
        Preset.KUEUE: QueueSeries(
            labels=("label_kueue_x_k8s_io_cluster_queue_name",),
            gauge="kueue_cluster_queue_resource_usage",
            name="cluster_queue",
            by="cluster_queue,flavor,resource",
            where='resource="nvidia.com/gpu"',
            mend="Set metrics.enableClusterQueueResources in Kueue's configuration, and scrape it.",
        ),
        Preset.VOLCANO: QueueSeries(
            labels=("label_volcano_sh_queue_name",),
            gauge="volcano_queue_allocated_scalar_resources",
            name="queue_name",
            by="queue_name,resource",
            where='resource="nvidia.com/gpu"',
            per_gpu=1000,  # thousandths, whatever its name says
            mend="Scrape the scheduler of Volcano.",
        ),
        Preset.KAI: QueueSeries(
            labels=("label_kai_scheduler_queue", "label_runai_queue"),  # the second before 0.6
            gauge="kai_queue_allocated_gpus",
            name="queue_name",
            by="queue_name",
            mend="Scrape KAI's queue controller.",
        ),
    }
)

SAMPLED: Mapping[Preset, SampledSeries] = MappingProxyType(
    {
        Preset.NETDATA: SampledSeries(
            metric="netdata_nvidia_smi_user_mem_MiB_average",
            always="netdata_nvidia_smi_gpu_utilization_percentage_average",
            hosts=("hostname", "instance"),
            user="dimension",
            parts=("chart", "family", "gpu"),
            of_memory=True,
            mend="Let Prometheus scrape netdata's /api/v1/allmetrics?format=prometheus of each host.",
        ),
        Preset.GENV: SampledSeries(
            metric="genv_user_attached_devices_total",
            always="genv_users_total",
            hosts=("hostname", "instance"),
            user="username",
            parts=(),
            of_memory=False,
            mend="Start genv monitor on each host, and let Prometheus scrape it.",
        ),
    }
)


RATIO, PERCENT = Decimal(1), Decimal(100)
HIGHEST_RATIO = Decimal(
    "1.5"
)  # that a counter of a ratio may reach by its own inexactness; more is no sample
ONE = Decimal(1)


class Means(StrEnum):
    """What a metric tells of a device. Only what says that it worked at all is ever taken without being asked for."""

    WORKING = "part of the time in which it worked"
    INTENSITY = "how much of it worked"


@dataclass(frozen=True, slots=True)
class Metric:
    """`divisor`: what is divided by to get 0 to 1. `mig`: it is told of slices, each for itself."""

    name: str
    divisor: Decimal
    mig: bool
    means: Means = Means.INTENSITY

    @property
    def limit(self) -> Decimal:
        """Beyond it a sample is none: blanks of old exporters are 9223372036854775794."""
        return HIGHEST_RATIO if self.divisor == RATIO else self.divisor

    @property
    def is_percent(self) -> bool:
        return self.divisor == PERCENT


# By preference. A name that ends in UTIL_RATIO is no promise: one of the two is a percentage.
CATALOGUE = (
    Metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", RATIO, True, Means.WORKING),
    Metric("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", RATIO, True, Means.WORKING),
    Metric("DCGM_FI_DEV_GPU_UTIL", PERCENT, False, Means.WORKING),
    Metric("DCGM_FI_DEV_GPU_UTIL_RATIO", PERCENT, False, Means.WORKING),
    Metric("DCGM_FI_PROF_SM_ACTIVE", RATIO, True),
    Metric("DCGM_FI_PROF_SM_OCCUPANCY", RATIO, True),
    Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", RATIO, True),
    Metric("DCGM_FI_PROF_PIPE_FP64_ACTIVE", RATIO, True),
    Metric("DCGM_FI_PROF_PIPE_FP32_ACTIVE", RATIO, True),
    Metric("DCGM_FI_PROF_PIPE_FP16_ACTIVE", RATIO, True),
    Metric("DCGM_FI_PROF_DRAM_ACTIVE", RATIO, True),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", PERCENT, False),
    Metric("DCGM_FI_DEV_ENC_UTIL", PERCENT, False),
    Metric("DCGM_FI_DEV_DEC_UTIL", PERCENT, False),
)
BY_NAME = {metric.name: metric for metric in CATALOGUE}
PREFERRED = CATALOGUE[0].name


def chosen(name: str, divisor: Decimal | None) -> tuple[Metric, ...]:
    """What is read, by preference. `name` "": whichever of those is there that say whether a device worked.

    A name that is not known needs a divisor, and is taken at its word on MIG. KeyError where it has none.
    """
    if not name:
        metrics = tuple(metric for metric in CATALOGUE if metric.means is Means.WORKING)
    elif name in BY_NAME:
        metrics = (BY_NAME[name],)
    elif divisor is not None:
        metrics = (Metric(name, divisor, True),)
    else:
        raise KeyError(name)
    return tuple(
        metric if divisor is None else Metric(metric.name, divisor, metric.mig, metric.means)
        for metric in metrics
    )
