"""The nominalQuota of GPUs in a ClusterQueue of Kueue, where its list of quotas is ours to write.

`resourceGroups` is one field: the manager that applies it owns all of it. So it is only written where it was handed
over to our field manager, and then with all that stands in it; it is never given up, since that would delete it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.connectors.acts import ActRefusedError, Limits
from clusters.connectors.kubernetes.api import QUOTA_MANAGER
from clusters.connectors.kubernetes.objects import Queue
from portal.excerpt import quoted

GPUS = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Slot:
    """The quota of GPUs of one flavor. `value`: a number is ours; what somebody else manages says whose it is."""

    name: str
    flavor: str
    value: int | str
    borrowing: str  # "": as much as the cohort has


def slots(queue: Queue) -> list[Slot]:
    """Those of the ClusterQueue, in its order."""
    owner = queue.metadata.owner(QUOTA_MANAGER, "spec", "resourceGroups")
    rows = []
    for flavor, resource in _entries(queue.spec.resource_groups):
        amount = str(resource.get("nominalQuota", ""))
        is_ours = owner == QUOTA_MANAGER and amount.isascii() and amount.isdecimal()
        limit = resource.get("borrowingLimit")
        rows.append(
            Slot(
                slot_name(queue, flavor),
                flavor,
                int(amount) if is_ours else f"{amount} by {owner}",
                "" if limit is None else str(limit),
            )
        )
    return rows


def slot_name(queue: Queue, flavor: str) -> str:
    """How the limit is called."""
    return f"nominalQuota of {GPUS}, flavor {flavor} of ClusterQueue {queue.metadata.name}"


def quota_limits(queue: Queue, gpus: Mapping[str, int]) -> dict[str, int]:
    """By name what has to stand; a GPU model is the flavor of its name. Raises ActRefusedError where that cannot be."""
    listed, title = slots(queue), queue.metadata.name
    if not listed:
        raise ActRefusedError("kueue-quota-none", retry=False, queue=title, resource=GPUS)
    owner = next((str(one.value) for one in listed if not isinstance(one.value, int)), None)
    if owner is not None:
        raise ActRefusedError("kueue-quota-owned", retry=False, queue=title, value=owner)
    limits: dict[str, int] = {}
    for model, number in gpus.items():
        fitting = [one for one in listed if model in {"", one.flavor}]
        if len(fitting) != 1:
            names = ", ".join(one.flavor for one in listed)
            code = "kueue-quota-of-model" if model else "kueue-quota-of-flavors"
            raise ActRefusedError(code, retry=False, queue=title, model=quoted(model), names=names)
        name = fitting[0].name
        limits[name] = min(number, limits.get(name, number))
    return limits


def notes(queue: Queue, names: Limits) -> Iterator[str]:
    """In sentences how the queue can hold more than these."""
    cohort = queue.spec.cohort or queue.spec.cohort_name
    borrowing = [one.borrowing for one in slots(queue) if one.name in names]
    if not cohort or all(limit == "0" for limit in borrowing):
        return
    most = max(borrowing, key=lambda limit: (len(limit), limit)) if all(borrowing) else ""  # whole numbers
    how_much = f"up to {most} GPUs" if most else "as much as others leave"
    yield (
        f"ClusterQueue {queue.metadata.name} may borrow {how_much} in the cohort {cohort}, and so hold more than its "
        "nominalQuota: give it a borrowingLimit of 0 in Kueue if it must not."
    )


def changed(queue: Queue, target: Limits) -> list[dict[str, Any]]:
    """The whole list, with the numbers of the target."""
    groups = copy.deepcopy(queue.spec.resource_groups or [])
    for flavor, resource in _entries(groups):
        number = target.get(slot_name(queue, flavor))
        if isinstance(number, int):
            resource["nominalQuota"] = str(number)
    return groups


def _entries(groups: list[dict[str, Any]] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """By flavor the entry of GPUs, where it has one."""
    for group in groups or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                if resource.get("name") == GPUS:
                    yield str(flavor.get("name")), resource
