"""What a device is of a whole GPU: exact, from the resource's name, the node's labels and the operator's table."""

from __future__ import annotations

import pytest

from clusters.connectors.base import ConnectorError
from clusters.connectors.mig import UnknownShareError
from clusters.connectors.prometheus import AccountFrom, Attribution, LabelNames, PrometheusOptions
from clusters.connectors.prometheus.nodes import fraction, shape
from portal.excerpt import excerpt

PRODUCT, REPLICAS = "label_nvidia_com_gpu_product", "label_nvidia_com_gpu_replicas"


def _shape_of(resource: str, product: str, **labels: str) -> tuple[str, str, tuple[int, int], str]:
    of = shape(resource, {PRODUCT: product, **labels}, PrometheusOptions())
    return of.model, of.profile, of.share, of.resource


SHAPES = [
    ("nvidia_com_gpu", "NVIDIA-H100-80GB-HBM3", "h100-80gb-hbm3", "", (1, 1), "nvidia.com/gpu"),
    ("nvidia_com_gpu", "Tesla-V100-SXM2-16GB", "tesla-v100-sxm2-16gb", "", (1, 1), "nvidia.com/gpu"),
    ("nvidia_com_gpu", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100-sxm4-40gb", "1g.5gb", (1, 7), "nvidia.com/gpu"),
    ("nvidia_com_gpu", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me", "a100-sxm4-40gb", "1g.5gb+me", (1, 7), "nvidia.com/gpu"),
    ("nvidia_com_gpu", "NVIDIA-A30-MIG-2g.12gb", "a30", "2g.12gb", (1, 2), "nvidia.com/gpu"),
    ("nvidia_com_mig_3g_20gb", "NVIDIA-A100-SXM4-40GB", "a100-sxm4-40gb", "3g.20gb", (3, 7), "nvidia.com/mig-3g.20gb"),
    ("nvidia_com_mig_7g_80gb", "NVIDIA-H100-80GB-HBM3", "h100-80gb-hbm3", "7g.80gb", (1, 1), "nvidia.com/mig-7g.80gb"),
    ("nvidia_com_mig_1g_10gb_me", "NVIDIA-H100-80GB-HBM3", "h100-80gb-hbm3", "1g.10gb+me", (1, 7),
     "nvidia.com/mig-1g.10gb.me"),
    # One compute slice with twice the memory: four fill a GPU. On the 80 GB model it is the plain slice.
    ("nvidia_com_mig_1g_10gb", "NVIDIA-A100-SXM4-40GB", "a100-sxm4-40gb", "1g.10gb", (1, 4), "nvidia.com/mig-1g.10gb"),
    ("nvidia_com_mig_1g_10gb", "NVIDIA-A100-SXM4-80GB", "a100-sxm4-80gb", "1g.10gb", (1, 7), "nvidia.com/mig-1g.10gb"),
    ("nvidia_com_mig_1g_20gb", "NVIDIA-A100-SXM4-80GB", "a100-sxm4-80gb", "1g.20gb", (1, 4), "nvidia.com/mig-1g.20gb"),
    ("nvidia_com_mig_1g_18gb", "NVIDIA-H200", "h200", "1g.18gb", (1, 7), "nvidia.com/mig-1g.18gb"),
    ("nvidia_com_mig_1g_23gb", "NVIDIA-B200", "b200", "1g.23gb", (1, 7), "nvidia.com/mig-1g.23gb"),
    ("nvidia_com_mig_1g_6gb", "", "", "1g.6gb", (1, 4), "nvidia.com/mig-1g.6gb"),
    ("amd_com_gpu", "", "", "", (1, 1), "amd_com_gpu"),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "product", "model", "profile", "share", "written"), SHAPES)
def test_shapes(
    resource: str, product: str, model: str, profile: str, share: tuple[int, int], written: str
) -> None:
    assert _shape_of(resource, product) == (model, profile, share, written)


def test_a_time_sliced_gpu_is_one_of_its_replicas_whether_renamed_or_not() -> None:
    assert _shape_of("nvidia_com_gpu_shared", "NVIDIA-L4", **{REPLICAS: "4"})[2:] == (
        (1, 4),
        "nvidia.com/gpu.shared",
    )
    assert _shape_of("nvidia_com_gpu", "NVIDIA-L4-SHARED", **{REPLICAS: "10"}) == (
        "l4",
        "",
        (1, 10),
        "nvidia.com/gpu",
    )
    sliced = _shape_of("nvidia_com_gpu", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", **{REPLICAS: "2"})
    assert sliced == ("a100-sxm4-40gb", "1g.5gb", (1, 14), "nvidia.com/gpu")
    mixed = {"label_nvidia_com_mig_2g_10gb_replicas": "3"}
    assert _shape_of("nvidia_com_mig_2g_10gb_shared", "NVIDIA-A100-SXM4-40GB", **mixed)[2] == (2, 21)


@pytest.mark.parametrize("replicas", ["", "0", "-1", "four", "٤", "9" * 5000], ids=excerpt)
def test_a_shared_gpu_without_a_count_is_no_share_at_all(replicas: str) -> None:
    with pytest.raises(UnknownShareError, match="does not say among how many"):
        _shape_of("nvidia_com_gpu_shared", "NVIDIA-L4", **{REPLICAS: replicas})


def test_an_unknown_slice_is_no_share_at_all() -> None:
    with pytest.raises(
        UnknownShareError, match=r"The MIG profile '8g.5gb' is not known: add its share of a h100"
    ):
        _shape_of("nvidia_com_mig_8g_5gb", "NVIDIA-H100")


def test_the_operator_s_table_and_names_come_first() -> None:
    options = PrometheusOptions(
        models={"NVIDIA-A100-SXM4-40GB": "A100 (40 GB)"},
        shares={("A100 (40 GB)", "2g.10gb"): (1, 3), ("h100", "1g.10gb"): (1, 8), ("", "3g.20gb"): (1, 2)},
    )
    of = shape("nvidia_com_mig_2g_10gb", {PRODUCT: "NVIDIA-A100-SXM4-40GB"}, options)
    assert (of.model, of.share) == ("A100 (40 GB)", (1, 3))
    of = shape("nvidia_com_gpu", {PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-1g.10gb"}, options)
    assert (of.model, of.share) == ("A100 (40 GB)", (1, 4))  # known by what the node calls it
    assert shape("nvidia_com_mig_1g_10gb", {PRODUCT: "NVIDIA-H100-80GB-HBM3"}, options).share == (1, 8)
    assert shape("nvidia_com_mig_3g_20gb", {}, options).share == (1, 2)


def test_parts_by_annotation_are_exact() -> None:
    assert fraction("gpu_fraction", "0.5", {}) == (1, 2)
    assert fraction("gpu_fraction", "0.35", {}) == (7, 20)
    assert fraction("gpu_fraction", "1", {}) == (1, 1)
    assert fraction("gpu_fraction", "5e-1", {}) == (1, 2)
    memory = {"label_nvidia_com_gpu_memory": "81559"}
    assert fraction("gpu_memory", "20000", memory) == (20_000, 81_559)


@pytest.mark.parametrize(
    ("annotation", "value", "labels"),
    [
        ("gpu_fraction", "half", {}), ("gpu_fraction", "0", {}), ("gpu_fraction", "-0.5", {}),
        ("gpu_fraction", "1.5", {}), ("gpu_fraction", "NaN", {}), ("gpu_fraction", "Infinity", {}),
        ("gpu_fraction", "1e-999999999", {}), ("gpu_fraction", "0." + "3" * 5000, {}),
        ("gpu_memory", "2000", {"label_nvidia_com_gpu_memory": "9e999999999"}),
        ("gpu_memory", "2000", {}), ("gpu_memory", "2000", {"label_nvidia_com_gpu_memory": "0"}),
    ],
)  # fmt: skip
def test_an_annotation_that_is_no_part_of_a_gpu_is_no_share(
    annotation: str, value: str, labels: dict[str, str]
) -> None:
    with pytest.raises(UnknownShareError):
        fraction(annotation, value, labels)


def test_a_part_of_too_many_decimals_is_set_aside_with_what_to_write() -> None:
    assert fraction("gpu_fraction", "0.333333333", {}) == (333_333_333, 1_000_000_000)
    with pytest.raises(UnknownShareError, match="write it with nine decimals or fewer"):
        fraction("gpu_fraction", "0.3333333333", {})


@pytest.mark.parametrize("matcher", ['cluster="x"', ' cluster = "x" , env=~"a|b"', 'a!="",b!~"c\\"d"'])
def test_a_matcher_is_taken(matcher: str) -> None:
    assert PrometheusOptions(matcher=matcher).matcher == matcher


@pytest.mark.parametrize(
    "matcher", ["cluster", 'cluster="x"}', 'a="b" or up', 'a="b",', "a='b'", '{a="b"}', 'a="b"c="d"']
)
def test_what_is_no_matcher_is_refused(matcher: str) -> None:
    with pytest.raises(ConnectorError, match='write it as cluster="x"'):
        PrometheusOptions(matcher=matcher)


def test_label_names_are_looked_at() -> None:
    with pytest.raises(ConnectorError, match="is no label name"):
        PrometheusOptions(labels=LabelNames(pod="pod-name"))
    with pytest.raises(ConnectorError, match="is no label name"):
        PrometheusOptions(account=Attribution(source=AccountFrom.POD_LABEL, label="kueue.x-k8s.io/queue"))
    with pytest.raises(ConnectorError, match="Name the label"):
        PrometheusOptions(account=Attribution(source=AccountFrom.NAMESPACE_LABEL))
