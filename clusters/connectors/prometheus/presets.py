"""What schedulers and meters of GPUs beside kube-state-metrics tell: their metrics, their labels, and the units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
