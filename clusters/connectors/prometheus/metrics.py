"""DCGM's metrics of use: what each counts in, and whether it works on MIG slices."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

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
