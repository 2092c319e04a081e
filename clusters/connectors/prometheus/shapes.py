"""What a device that a pod asked for is of a whole GPU, and of which model: exact, or a reason why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from clusters.connectors.mig import Share, UnknownShareError, slice_share
from clusters.connectors.prometheus.options import PrometheusOptions
from portal.excerpt import excerpt, quoted

PRODUCT = "label_nvidia_com_gpu_product"
REPLICAS = "label_nvidia_com_gpu_replicas"
MEMORY = "label_nvidia_com_gpu_memory"  # MiB of one GPU
FINEST = 2**31 - 1  # what a share divides a GPU into at most
SIZE = 20  # characters of a number that somebody wrote, and decimal places to its first digit

_PRODUCT = re.compile(
    r"(?P<model>.+?)(?:-MIG-(?P<profile>\dg\.\d+gb[\w.+]*?))?(?P<shared>-SHARED)?", re.IGNORECASE
)
_RESOURCE = re.compile(
    r"nvidia_com_(?:gpu|mig_(?P<profile>\dg_\d+gb\w*?))(?P<shared>_shared)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Shape:
    """`share`: what one device is of a whole GPU. `resource`: as people write it, nvidia.com/mig-2g.10gb."""

    model: str
    profile: str
    share: Share
    resource: str


def shape(resource: str, node: Mapping[str, str], options: PrometheusOptions) -> Shape:
    """Of a resource as kube-state-metrics spells it, on a node with these labels. Raises `UnknownShareError`."""
    match = _RESOURCE.fullmatch(resource)
    product = _PRODUCT.fullmatch(node.get(PRODUCT, ""))
    model = model_of(node, options)
    if match is None:  # of another vendor, whole
        return Shape(model, "", (1, 1), resource)
    slice_name = match["profile"]
    profile = _profile(slice_name) if slice_name else _product_profile(product["profile"]) if product else ""
    own = (product["model"] if product else "").lower().removeprefix("nvidia-")
    share = slice_share(model, own, profile, options.shares) if profile else Fraction(1)
    if match["shared"] or (product and product["shared"]):
        label = f"label_nvidia_com_mig_{slice_name}_replicas" if slice_name else REPLICAS
        share /= _replicas(node, label)
    written = f"nvidia.com/mig-{profile.replace('+', '.')}" if slice_name else "nvidia.com/gpu"
    return Shape(model, profile, share.as_integer_ratio(), written + (".shared" if match["shared"] else ""))


def fraction(annotation: str, value: str, node: Mapping[str, str]) -> Share:
    """Of the annotations `gpu-fraction` ("0.5") and `gpu-memory` (MiB). Raises `UnknownShareError`."""
    try:
        part = _number(value)
        if annotation.endswith("memory"):
            part /= _number(node.get(MEMORY, ""))
    except (InvalidOperation, ValueError, OverflowError, ZeroDivisionError):
        raise UnknownShareError(
            f"The annotation {annotation}={quoted(value)} gives no share of a GPU; for memory the node's label "
            "nvidia.com/gpu.memory is needed too."
        ) from None
    if not 0 < part <= 1:
        raise UnknownShareError(f"The annotation {annotation}={quoted(value)} is not a part of one GPU.")
    if part.denominator > FINEST:
        raise UnknownShareError(
            f"The annotation {annotation}={quoted(value)} is a finer part of a GPU than is kept: write it with nine "
            "decimals or fewer."
        )
    return part.as_integer_ratio()


def _number(text: str) -> Fraction:
    """Raises ValueError or a relative where it is none of ordinary size: whoever starts a pod may write anything there,
    and exact arithmetic with `1e-999999999` takes days."""
    number = Decimal(text[: SIZE + 1])
    if len(text) > SIZE or abs(number.adjusted()) > SIZE:
        raise ValueError(text[:SIZE])
    return Fraction(number)


def model_of(node: Mapping[str, str], options: PrometheusOptions) -> str:
    """`NVIDIA-A100-SXM4-40GB-MIG-1g.5gb` is an `a100-sxm4-40gb`, unless the operator calls it otherwise."""
    product = node.get(PRODUCT, "")
    match = _PRODUCT.fullmatch(product)
    bare = match["model"] if match else product
    for name in (product, bare):
        if name in options.models:
            return options.models[name]
    return bare.lower().removeprefix("nvidia-")


def _profile(name: str) -> str:
    """`1g_5gb_me` as `1g.5gb+me`."""
    head, _, extra = name.lower().replace("_", ".", 1).partition("_")
    return f"{head}+{extra.replace('_', '.')}" if extra else head


def _product_profile(name: str | None) -> str:
    """`1g.5gb.me`, as a product ends, is `1g.5gb+me`."""
    return re.sub(r"(?<=gb)\.", "+", (name or "").lower())


def _replicas(node: Mapping[str, str], label: str) -> int:
    text = node.get(label, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= SIZE and int(text)):
        raise UnknownShareError(
            f"The device is shared, but the node does not say among how many ({excerpt(label)}): let "
            "kube-state-metrics export its labels, with --metric-labels-allowlist=nodes=[nvidia.com/*]."
        )
    return int(text)
