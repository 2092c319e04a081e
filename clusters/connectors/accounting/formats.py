"""Every format of accounting that is read from a file, by the name that people give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol
from zoneinfo import ZoneInfo

from clusters.connectors.accounting import grid_engine, lsf, opencost, pbs, spend_logs
from clusters.connectors.base import Reading, Row
from clusters.connectors.mig import OwnShares
from clusters.connectors.sacct import json_export, text_export
from clusters.connectors.sums import MeterUnits

FORMATS = ("sacct", "sacct-json", "pbs", "lsf", "grid-engine", "grid-engine-per-slot", "litellm", "opencost")
"""`grid-engine-per-slot` is for clusters whose complex of GPUs is consumed by each slot of a parallel job."""


class Export(Protocol):
    """One file that was found readable. `reading` is complete when `rows()` ends."""

    reading: Reading

    def rows(self) -> Iterator[Row]: ...


def open_export(
    path: Path,
    form: str,
    *,
    zone: ZoneInfo,
    shares: OwnShares = (),
    columns: Sequence[str] | None = None,
    delimiter: str = "|",
    meters: MeterUnits = MappingProxyType({}),
) -> Export:
    """The file as one of FORMATS; `columns` and `delimiter` are of sacct's text, `meters` the declared ones.

    Raises `ConnectorError`.
    """
    if form == "litellm":
        return spend_logs.open_export(path, meters=meters)
    if form == "opencost":
        return opencost.open_export(path)
    if form == "sacct-json":
        return json_export.open_export(path, shares=shares)
    if form == "pbs":
        return pbs.open_export(path, zone=zone, shares=shares)
    if form == "lsf":
        return lsf.open_export(path)
    if form.startswith("grid-engine"):
        return grid_engine.open_export(path, shares=shares, gpus_per_slot=form.endswith("per-slot"))
    return text_export.open_export(path, zone=zone, columns=columns, delimiter=delimiter, shares=shares)
