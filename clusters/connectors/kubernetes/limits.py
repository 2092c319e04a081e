"""What stops an account in Kubernetes, and how much it may hold, as limits by name: read from its objects."""

from __future__ import annotations

from typing import Any

from clusters.connectors.acts import Limits
from clusters.connectors.kubernetes import queue_quota
from clusters.connectors.kubernetes.accounts import QUOTA_NAME, AccountObjects, QueueObject
from clusters.connectors.kubernetes.api import MANAGER
from clusters.connectors.kubernetes.objects import Quota

HOLD, DRAIN, NONE = "Hold", "HoldAndDrain", "None"
YES = "yes"
"""Of a queue that is drained: its running workloads are ended, besides that it is held."""


def stop_name(one: QueueObject) -> str:
    """Of the limit that keeps new workloads of the queue waiting."""
    return f"stopPolicy of {one.title}"


def drain_name(one: QueueObject) -> str:
    """Of the limit that ends its running workloads; with `blocks.DRAINS` as its beginning."""
    return f"drain of {one.title}"


def hard_name(namespace: str, resource: str) -> str:
    """Of a number in our ResourceQuota."""
    return f"{resource} of ResourceQuota {namespace}/{QUOTA_NAME}"


def of_namespace(limits: Limits, namespace: str) -> dict[str, Any]:
    """Those of our ResourceQuota there."""
    end = hard_name(namespace, "")
    return {name: value for name, value in limits.items() if name.endswith(end)}


def read(objects: AccountObjects) -> dict[str, Any]:
    """All that stands. What is ours alone is `Hold`, `yes` or a number; else the value says whose it is."""
    limits: dict[str, Any] = {}
    for one in objects.queues:
        limits[stop_name(one)], is_drained = _stop_value(one)
        if is_drained:
            limits[drain_name(one)] = YES
        if one.is_cluster:
            limits |= {slot.name: slot.value for slot in queue_quota.slots(one.queue)}
    for namespace, quota in objects.namespaces.items():
        for resource in (quota.spec.hard if quota else None) or {}:
            limits[hard_name(namespace, resource)] = _hard_value(quota, resource)
    return limits


def without_effect(objects: AccountObjects, limits: Limits) -> list[str]:
    """By name those that are written and not obeyed yet, by the status of their objects."""
    names = []
    for one in objects.queues:
        if limits.get(stop_name(one)) == HOLD and not one.queue.is_stopped:
            names.append(stop_name(one))
        ours = [slot.name for slot in queue_quota.slots(one.queue) if isinstance(limits.get(slot.name), int)]
        names += ours if one.is_cluster and not one.queue.is_seen else []
    for namespace, quota in objects.namespaces.items():
        counted = (quota.status.hard if quota else None) or {}
        for resource in (quota.spec.hard if quota else None) or {}:
            name = hard_name(namespace, resource)
            if isinstance(limits.get(name), int) and str(counted.get(resource)) != str(limits[name]):
                names.append(name)
    return names


def is_ours(quota: Quota) -> bool:
    """Whether we applied it. One of somebody else's under our name is never touched."""
    return MANAGER in quota.metadata.managers("spec", "hard")


def _stop_value(one: QueueObject) -> tuple[str, bool]:
    """What stops it, and whether we drain it, too; of what somebody else has set, whose it is."""
    policy = one.queue.spec.stop_policy or NONE
    owner = one.queue.metadata.owner(MANAGER, "spec", "stopPolicy")
    if policy == NONE or (policy in {HOLD, DRAIN} and owner == MANAGER):
        return (NONE, False) if policy == NONE else (HOLD, policy == DRAIN)
    return f"{policy} by {owner}", False


def _hard_value(quota: Quota | None, resource: str) -> int | str:
    amount = str(((quota.spec.hard if quota else None) or {}).get(resource, ""))
    if quota is None or not (amount.isascii() and amount.isdecimal()):
        return amount
    owner = quota.metadata.owner(MANAGER, "spec", "hard", resource)
    return int(amount) if owner == MANAGER else f"{amount} by {owner}"
