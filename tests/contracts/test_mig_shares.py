"""A slice is the same part of its GPU whichever source tells of it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from clusters.connectors.base import UnreadableError
from clusters.connectors.mig import DEFAULT_SHARES, UnknownShareError, own_shares, slice_share
from clusters.connectors.prometheus import PrometheusOptions
from clusters.connectors.prometheus.nodes import PRODUCT, shape
from clusters.connectors.sacct.tres import parse_tres
from clusters.connectors.slurm.decode import TresCount
from clusters.connectors.slurm.resources import allocated

MODELS = (
    *(
        "",
        "a30",
        "a100-sxm4-40gb",
        "a100-pcie-40gb",
        "a100-sxm4-80gb",
        "h100-80gb-hbm3",
        "h200",
        "gh200-480gb",
    ),
    *("b200", "rtx-pro-6000"),
)
PROFILES = sorted(
    {profile for _, profile in DEFAULT_SHARES}
    | {"1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "1g.10gb+me", "1g.18gb", "7g.80gb"}
)


def of_kubernetes(model: str, profile: str) -> Fraction | None:
    resource = f"nvidia_com_mig_{profile.replace('.', '_').replace('+', '_')}"
    try:
        return Fraction(*shape(resource, {PRODUCT: f"NVIDIA-{model}"}, PrometheusOptions()).share)
    except UnknownShareError:
        return None


def of_slurm(name: str) -> Fraction | None:
    try:
        return Fraction(*parse_tres(f"gres/gpu:{name}=1").gpu_share)
    except UnreadableError:
        return None


@pytest.mark.parametrize("model", MODELS)
def test_slurm_and_kubernetes_count_every_slice_alike(model: str) -> None:
    for profile in PROFILES:
        share = of_kubernetes(model, profile)
        assert of_slurm(f"{model}_{profile}".strip("_")) == share, profile
        if model:
            assert of_slurm(f"nvidia_{model}_{profile}") == share, profile


def test_a_model_that_is_named_shortly_is_found_too() -> None:
    assert of_slurm("a100-40gb_1g.10gb") == Fraction(1, 4)
    assert of_slurm("a100_1g.20gb") == of_slurm("h100_1g.20gb") == of_slurm("h200_1g.35gb") == Fraction(1, 4)
    assert of_slurm("tesla-a30_2g.12gb") == Fraction(1, 2)
    assert of_slurm("a30_7g.40gb") is None


def test_the_operators_rows_come_first_in_files_and_over_rest() -> None:
    rows = own_shares({"a100": {"1g.10gb": "1/4"}, "": {"2g.10gb": "1/3"}}, "shares")
    listed = (TresCount(type="gres", name="gpu:a100_1g.10gb", count=2),)
    assert parse_tres("gres/gpu:a100_1g.10gb=2").gpu_share == allocated(listed).gpu_share == (1, 7)
    assert (
        parse_tres("gres/gpu:a100_1g.10gb=2", rows).gpu_share == allocated(listed, rows).gpu_share == (1, 4)
    )
    assert parse_tres("gres/gpu:2g.10gb=1", rows).gpu_share == (1, 3)
    assert slice_share("a100", "a100", "1g.10gb+me", {("a100", "1g.10gb"): (1, 4)}) == Fraction(1, 4)
