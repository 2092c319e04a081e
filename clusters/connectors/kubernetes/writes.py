"""The writes that bring an account's objects from what stands to what shall stand: bodies of server-side apply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.connectors.acts import ActRefusedError, Limits
from clusters.connectors.kubernetes import limits, queue_quota
from clusters.connectors.kubernetes.accounts import QUOTA_NAME, AccountObjects, QueueObject, quota_path
from clusters.connectors.kubernetes.api import KUEUE, MANAGER, QUOTA_MANAGER
from clusters.connectors.kubernetes.objects import Quota


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one object. `body` None: the object is deleted."""

    what: str
    path: str
    body: Mapping[str, Any] | None
    uid: str = ""
    version: str = ""
    manager: str = MANAGER


def list_writes(objects: AccountObjects, current: Limits, target: Limits, *, version: str) -> Iterator[Write]:
    """One for each object that differs; `version` of Kueue's API. Raises ActRefusedError for what is not ours."""
    for one in objects.queues:
        if _differ(current, target, (limits.stop_name(one), limits.drain_name(one))):
            yield _stop(one, version, target)
        names = [slot.name for slot in queue_quota.slots(one.queue)] if one.is_cluster else []
        if _differ(current, target, names):
            spec = {"resourceGroups": queue_quota.changed(one.queue, target)}
            body = {**_queue_body(one, version), "spec": spec}
            yield Write(one.title, one.path(version), body, manager=QUOTA_MANAGER)
    for namespace, quota in objects.namespaces.items():
        hard = limits.of_namespace(target, namespace)
        if _differ(current, target, {*limits.of_namespace(current, namespace), *hard}):
            yield _quota_write(namespace, quota, hard)


def _differ(current: Limits, target: Limits, names: Iterable[str]) -> bool:
    return any(current.get(name) != target.get(name) for name in names)


def _stop(one: QueueObject, version: str, target: Limits) -> Write:
    """Left out, stopPolicy is given up: it is what it was before it was ours."""
    body = _queue_body(one, version)
    if target.get(limits.drain_name(one)) == limits.YES:
        body["spec"] = {"stopPolicy": limits.DRAIN}
    elif target.get(limits.stop_name(one)) == limits.HOLD:
        body["spec"] = {"stopPolicy": limits.HOLD}
    return Write(one.title, one.path(version), body)


def _queue_body(one: QueueObject, version: str) -> dict[str, Any]:
    """The uid keeps a queue that was deleted meanwhile from being created again."""
    meta = one.queue.metadata
    metadata = {"name": meta.name, "uid": meta.uid} | (
        {} if one.is_cluster else {"namespace": meta.namespace}
    )
    return {"apiVersion": f"{KUEUE}/{version}", "kind": one.kind, "metadata": metadata}


def _quota_write(namespace: str, quota: Quota | None, target: Limits) -> Write:
    what, path = f"ResourceQuota {namespace}/{QUOTA_NAME}", quota_path(namespace)
    if quota is not None and not limits.is_ours(quota):
        raise ActRefusedError("kubernetes-quota-foreign", retry=False, what=what)
    hard = {name.partition(" of ")[0]: str(value) for name, value in target.items() if isinstance(value, int)}
    if quota is not None and not target:
        return Write(what, path, None, quota.metadata.uid, quota.metadata.version)
    metadata: dict[str, Any] = {"name": QUOTA_NAME, "namespace": namespace}
    if hard:
        metadata["labels"] = {"app.kubernetes.io/managed-by": MANAGER}
    if quota is not None:
        metadata["uid"] = quota.metadata.uid
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    return Write(what, path, {**body, "spec": {"hard": hard}} if hard else body)
