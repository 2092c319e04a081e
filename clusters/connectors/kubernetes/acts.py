"""What can be done through the API server of a Kubernetes cluster: stop an account's queues, or bar GPUs by a quota.

All is written by server-side apply with our own field manager, and never forced. So what is ours is always known,
and is taken back by giving it up: whatever else stands in an object comes out as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.connectors.acts import (
    ActRefusedError,
    Ceiling,
    Demand,
    JobSeen,
    Limits,
    NotStuckError,
    differences,
)
from clusters.connectors.base import ConnectorError
from clusters.connectors.kubernetes.accounts import (
    QUOTA_NAME,
    AccountLookup,
    AccountObjects,
    QueueObject,
    quota_path,
)
from clusters.connectors.kubernetes.api import KUEUE, MANAGER
from clusters.connectors.kubernetes.objects import Metadata, Quota

PATIENCE = 5  # seconds in which what was done has to show
HOLD, NONE = "Hold", "None"
PODS = "pods"
"""Of our ResourceQuota: set to 0, no pod is admitted, also without GPUs."""
GPUS = "requests.nvidia.com/gpu"

_WAIT = (0, 5)  # hundredths of a second, doubling
_KEEPS = (
    "A Deployment or Job whose pod ends cannot bring it back before the block is lifted.",
    "Pods that only wait count against other quotas of the namespace.",
)
_AROUND = "Pods that do not go through Kueue are not stopped."
_WAITING = "Pods that only wait count, too; a few that start at the same moment can pass it."
_SLICES = "MIG slices are not counted."
_NO_REFUSAL = "Kueue refuses no job: new ones are submitted, and wait."


@dataclass(frozen=True, slots=True)
class _Write:
    """One write to one object. `body` None: the object is deleted."""

    what: str
    path: str
    body: Mapping[str, Any] | None
    uid: str = ""
    version: str = ""


class KubernetesActs:
    """The acts over one API server. `patience` in seconds."""

    scheduler = "Kubernetes"
    whom = "{account}"
    runs = "Running pods run on."
    in_parts = True

    def __init__(self, lookup: AccountLookup, *, patience: int = PATIENCE) -> None:
        self.lookup = lookup
        self.api = lookup.api
        self._patience = patience

    def close(self) -> None:
        self.api.close()

    def limits(self, account: str) -> dict[str, Any]:
        """What stops the account now, by object. Raises NoAccountError where it has none."""
        return _limits(self.lookup.find(account))

    def below(self, account: str) -> set[str]:
        """The accounts that share a ClusterQueue which is said to be this one's alone."""
        return self.lookup.others_in(account, self.lookup.find(account))

    def demand(self, account: str, *, now: Limits, submits: bool) -> Demand:
        """Queues are held, and namespaces without one get no GPU; `submits`: the account's namespaces get no pod."""
        objects = self.lookup.find(account)
        limits: dict[str, Any] = {}
        for one in objects.queues:
            name = _stop_name(one)
            stands = str(now.get(name, NONE))
            limits[name] = stands if stands.startswith(HOLD) else HOLD  # somebody else may hold it already
        resources = self.lookup.gpu_resources() if objects.without_queue else []
        limits |= {
            _hard_name(namespace, f"requests.{resource}"): 0
            for namespace in sorted(objects.without_queue)
            for resource in resources
        }
        if submits:
            limits |= {_hard_name(namespace, PODS): 0 for namespace in objects.namespaces}
        return Demand(limits=limits, notes=tuple(_notes(objects, submits=submits)))

    def ceiling(self, account: str, ceiling: Ceiling) -> Demand:
        """A ResourceQuota of ours in the account's namespace: one namespace, since it cannot span several."""
        if models := sorted(filter(None, ceiling.gpus)):
            raise ActRefusedError("kubernetes-limit-of-model", retry=False, model=models[0])
        namespaces = sorted(self.lookup.find(account).namespaces)
        if len(namespaces) != 1:
            code = "kubernetes-limit-of-namespaces" if namespaces else "kubernetes-limit-of-queue"
            raise ActRefusedError(code, retry=False, account=account, count=len(namespaces))
        limits = {_hard_name(namespaces[0], GPUS): number for number in ceiling.gpus.values()}
        if ceiling.jobs is not None:
            limits[_hard_name(namespaces[0], PODS)] = ceiling.jobs
        return Demand(limits=limits, notes=(_WAITING, *((_SLICES,) if ceiling.gpus else ())))

    def restored(self, value: Any) -> Any:
        """Ours goes; what is somebody else's stays."""
        if value == HOLD:
            return NONE
        return None if value == 0 else value

    def set_limits(self, account: str, target: Limits, *, before: Limits) -> dict[str, Any]:
        """Bring the limits from `before` to `target`; what they are then, once they are obeyed.

        Each write is rehearsed before the first is sent, so that what one of them refuses is refused as a whole; a
        write that is refused later has the earlier ones taken back.
        """
        objects = self.lookup.find(account)
        current = _limits(objects)
        if current != dict(target):
            if current != dict(before):
                raise ActRefusedError(
                    "kubernetes-limits-changed",
                    retry=False,
                    account=account,
                    differences="; ".join(differences(before, current)),
                )
            writes = list(self._writes(objects, current, target))
            for write in writes:
                self._send(write, rehearse=True)
            self._send_all(account, writes, before=current)
        self._refuse_otherwise(account, target, before=current)
        self._refuse_unobeyed(account, target)
        return self.limits(account)

    def refuse_without_effect(self, account: str, limits: Limits) -> None:
        """Raises where a queue still admits, or a quota is not counted yet. A status is what counts."""
        if open_names := _without_effect(self.lookup.find(account), limits):
            raise NotStuckError(
                "kubernetes-not-obeyed", retry=True, account=account, names=", ".join(open_names)
            )

    def jobs(self, *, account: str = "", user: str = "") -> list[JobSeen]:
        raise _no_jobs(account, user)

    def job(self, number: int) -> list[JobSeen]:
        raise _no_jobs(number)

    def cancel(self, number: int) -> list[JobSeen]:
        raise _no_jobs(number)

    def requeue(self, number: int) -> list[JobSeen]:
        raise _no_jobs(number)

    def refuse_requeues(self) -> None:
        raise _no_jobs()

    def hold(self, number: int) -> list[JobSeen]:
        raise _no_jobs(number)

    def release(self, number: int) -> list[JobSeen]:
        raise _no_jobs(number)

    def refuse_updates(self) -> None:
        raise _no_jobs()

    def _writes(self, objects: AccountObjects, current: Limits, target: Limits) -> Iterator[_Write]:
        for one in objects.queues:
            name = _stop_name(one)
            if current.get(name) != target.get(name):
                yield _stop(one, self.api.kueue, hold=target.get(name) == HOLD)
        for namespace, quota in objects.namespaces.items():
            names = {*_of_namespace(current, namespace), *_of_namespace(target, namespace)}
            if any(current.get(name) != target.get(name) for name in names):
                yield _quota_write(namespace, quota, _of_namespace(target, namespace))

    def _send_all(self, account: str, writes: list[_Write], *, before: Limits) -> None:
        for count, write in enumerate(writes):
            try:
                self._send(write)
            except ConnectorError as error:
                if count and not error.retry:
                    self._take_back(account, before)
                raise

    def _send(self, write: _Write, *, rehearse: bool = False) -> None:
        if write.body is None:
            self.api.delete(
                write.path, uid=write.uid, version=write.version, what=write.what, rehearse=rehearse
            )
        else:
            self.api.apply(write.path, write.body, what=write.what, rehearse=rehearse)

    def _take_back(self, account: str, before: Limits) -> None:
        """What a refusal left half done. What cannot be taken back now leaves the act open, to be looked at."""
        try:
            objects = self.lookup.find(account)
            for write in self._writes(objects, _limits(objects), before):
                self._send(write)
        except ConnectorError as error:
            raise ConnectorError(
                "kubernetes-half-done", retry=True, account=account, reason=str(error)
            ) from error

    def _refuse_otherwise(self, account: str, target: Limits, *, before: Limits) -> None:
        current = self.limits(account)
        if current != dict(target):
            self._take_back(account, before)
            raise NotStuckError(
                "kubernetes-limits-without-effect",
                retry=False,
                account=account,
                differences="; ".join(differences(target, current)),
            )

    def _refuse_unobeyed(self, account: str, target: Limits) -> None:
        end = time.monotonic() + self._patience
        wait, following = _WAIT
        while True:
            try:
                self.refuse_without_effect(account, target)
            except NotStuckError:
                if time.monotonic() >= end:
                    raise
            else:
                return
            time.sleep(wait / 100)
            wait, following = following, min(following * 2, 50)


def _no_jobs(*_: object) -> ActRefusedError:
    return ActRefusedError("kubernetes-no-jobs", retry=False)


def _stop_name(one: QueueObject) -> str:
    return f"stopPolicy of {one.title}"


def _hard_name(namespace: str, resource: str) -> str:
    return f"{resource} of ResourceQuota {namespace}/{QUOTA_NAME}"


def _of_namespace(limits: Limits, namespace: str) -> dict[str, Any]:
    end = _hard_name(namespace, "")
    return {name: value for name, value in limits.items() if name.endswith(end)}


def _limits(objects: AccountObjects) -> dict[str, Any]:
    limits: dict[str, Any] = {_stop_name(one): _stop_value(one) for one in objects.queues}
    for namespace, quota in objects.namespaces.items():
        for resource in (quota.spec.hard if quota else None) or {}:
            limits[_hard_name(namespace, resource)] = _hard_value(quota, resource)
    return limits


def _stop_value(one: QueueObject) -> str:
    """`Hold` is ours; what somebody else has set says whose it is."""
    policy = one.queue.spec.stop_policy or NONE
    owner = _owner(one.queue.metadata, "spec", "stopPolicy")
    return policy if policy == NONE or (policy == HOLD and owner == MANAGER) else f"{policy} by {owner}"


def _owner(metadata: Metadata, *path: str) -> str:
    """Ourselves where the field is ours alone: what somebody else owns too stays when we give it up."""
    owners = metadata.managers(*path)
    return next((one for one in owners if one != MANAGER), MANAGER if owners else "somebody else")


def _hard_value(quota: Quota | None, resource: str) -> int | str:
    """A number is ours; what somebody else owns is text."""
    amount = str(((quota.spec.hard if quota else None) or {}).get(resource, ""))
    if quota is None or not (amount.isascii() and amount.isdecimal()):
        return amount
    owner = _owner(quota.metadata, "spec", "hard", resource)
    return int(amount) if owner == MANAGER else f"{amount} by {owner}"


def is_ours(quota: Quota) -> bool:
    """Whether we applied it. One of somebody else's under our name is never touched."""
    return MANAGER in quota.metadata.managers("spec", "hard")


def _without_effect(objects: AccountObjects, limits: Limits) -> list[str]:
    names = [
        _stop_name(one)
        for one in objects.queues
        if limits.get(_stop_name(one)) == HOLD and not one.queue.is_stopped
    ]
    for namespace, quota in objects.namespaces.items():
        counted = (quota.status.hard if quota else None) or {}
        for resource in (quota.spec.hard if quota else None) or {}:
            name = _hard_name(namespace, resource)
            if isinstance(limits.get(name), int) and str(counted.get(resource)) != str(limits[name]):
                names.append(name)
    return names


def _notes(objects: AccountObjects, *, submits: bool) -> Iterator[str]:
    if objects.without_queue:
        yield from _KEEPS
    if objects.queues:
        yield _AROUND
    if submits and not objects.namespaces:
        yield _NO_REFUSAL


def _stop(one: QueueObject, version: str, *, hold: bool) -> _Write:
    """The uid keeps a queue that was deleted meanwhile from being made anew."""
    meta = one.queue.metadata
    metadata = {"name": meta.name, "uid": meta.uid} | (
        {} if one.is_cluster else {"namespace": meta.namespace}
    )
    body = {"apiVersion": f"{KUEUE}/{version}", "kind": one.kind, "metadata": metadata}
    return _Write(one.title, one.path(version), {**body, "spec": {"stopPolicy": HOLD}} if hold else body)


def _quota_write(namespace: str, quota: Quota | None, target: Limits) -> _Write:
    what, path = f"ResourceQuota {namespace}/{QUOTA_NAME}", quota_path(namespace)
    if quota is not None and not is_ours(quota):
        raise ActRefusedError("kubernetes-quota-foreign", retry=False, what=what)
    hard = {name.partition(" of ")[0]: str(value) for name, value in target.items() if isinstance(value, int)}
    if quota is not None and not target:
        return _Write(what, path, None, quota.metadata.uid, quota.metadata.version)
    metadata: dict[str, Any] = {"name": QUOTA_NAME, "namespace": namespace}
    if hard:
        metadata["labels"] = {"app.kubernetes.io/managed-by": MANAGER}
    if quota is not None:
        metadata["uid"] = quota.metadata.uid
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    return _Write(what, path, {**body, "spec": {"hard": hard}} if hard else body)
