"""Which declared meter each kind of GPUStack's usage is a sum of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from clusters.connectors.base import ConnectorError
from portal.excerpt import quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStackOptions:
    """Names of declared meters; "": usage of this kind is not read."""

    gpu: str = ""  # GPU-hours of instances, by fractions of a card
    cpu: str = ""  # unit-hours of instances without GPUs
    storage: str = ""  # GiB-hours of persistent volumes
    tokens: str = ""


def are_meters(table: object) -> bool:
    """Whether all of its keys are of a GPUStack, and their values texts."""
    allowed = {field.name for field in fields(GpuStackOptions)}
    return (
        isinstance(table, Mapping)
        and bool(table)
        and all(key in allowed and isinstance(value, str) for key, value in table.items())
    )


def options_from(table: object) -> GpuStackOptions:
    """Raises `ConnectorError` for options that are none, or that read nothing."""
    allowed = ", ".join(field.name for field in fields(GpuStackOptions))
    if not isinstance(table, Mapping):
        raise ConnectorError("options-no-table", retry=False)
    for key, value in table.items():
        if key not in allowed.split(", "):
            raise ConnectorError("option-unknown", retry=False, key=quoted(str(key)), allowed=allowed)
        if not isinstance(value, str) or not value.isprintable():
            raise ConnectorError("option-no-text", retry=False, key=key)
    if not any(table.values()):
        raise ConnectorError("gpustack-options", retry=False, allowed=allowed)
    return GpuStackOptions(**table)
