"""What can be done through the API server of a Kubernetes cluster: stop an account's queues, or bar GPUs by a quota.

All is written by server-side apply with our own field manager, and never forced. So what is ours is always known,
and is taken back by giving it up: whatever else stands in an object comes out as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
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
from clusters.connectors.kubernetes import limits as names
from clusters.connectors.kubernetes import queue_quota
from clusters.connectors.kubernetes.accounts import AccountLookup, AccountObjects
from clusters.connectors.kubernetes.limits import DRAIN, HOLD, NONE, YES
from clusters.connectors.kubernetes.writes import Write, list_writes

PATIENCE = 5  # seconds in which what was done has to show
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
_ENDS = "Kueue ends the workloads that run, and starts them again once the block goes."
_COMES_BACK = "Workloads without GPUs in these queues are ended, too."


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

    def limits(self, account: str, user: str = "") -> dict[str, Any]:
        """What stops the account now, by object. Raises NoAccountError where it has none; it knows no users."""
        if user:
            raise _no_jobs(user)
        return names.read(self.lookup.find(account))

    def below(self, account: str) -> set[str]:
        """The accounts that share a ClusterQueue which is said to be this one's alone."""
        return self.lookup.others_in(account, self.lookup.find(account))

    def demand(self, account: str, *, now: Limits, submits: bool, drains: bool = False) -> Demand:
        """Queues are held, and namespaces without one get no GPU; `submits`: the account's namespaces get no pod.

        `drains`: the queues end what runs, too. Raises ActRefusedError where the account has pods without a queue.
        """
        objects = self.lookup.find(account)
        if drains and (objects.without_queue or not objects.queues):
            namespace = min(objects.without_queue, default=account)
            raise ActRefusedError("kubernetes-drain-without-queue", retry=False, namespace=namespace)
        limits: dict[str, Any] = {}
        for one in objects.queues:
            name = names.stop_name(one)
            stands = str(now.get(name, NONE))
            limits[name] = stands if stands.startswith(HOLD) else HOLD  # somebody else may hold it already
            if drains and not stands.startswith(DRAIN):  # nor is a drain of somebody else's made ours, too
                limits[names.drain_name(one)] = YES
        resources = self.lookup.gpu_resources() if objects.without_queue else []
        limits |= {
            names.hard_name(namespace, f"requests.{resource}"): 0
            for namespace in sorted(objects.without_queue)
            for resource in resources
        }
        if submits:
            limits |= {names.hard_name(namespace, PODS): 0 for namespace in objects.namespaces}
        notes = tuple(_notes(objects, submits=submits, drains=drains))
        return Demand(limits=limits, notes=notes, runs=_ENDS if drains else "")

    def ceiling(self, account: str, ceiling: Ceiling) -> Demand:
        """GPUs as nominalQuota of a ClusterQueue that is the account's alone; else all in a ResourceQuota of ours."""
        objects = self.lookup.find(account)
        limits, notes = self._of_queue(account, objects, ceiling)
        is_held = bool(limits)
        if models := sorted(filter(None, ceiling.gpus)) if not is_held else []:
            raise ActRefusedError("kubernetes-limit-of-model", retry=False, model=models[0])
        if ceiling.jobs is None and (is_held or not ceiling.gpus):
            return Demand(limits=limits, notes=tuple(notes))
        namespaces = sorted(objects.namespaces)
        if len(namespaces) != 1:
            code = "kubernetes-limit-of-namespaces" if namespaces else "kubernetes-limit-of-queue"
            raise ActRefusedError(code, retry=False, account=account, count=len(namespaces))
        gpus = {} if is_held else ceiling.gpus
        limits |= {names.hard_name(namespaces[0], GPUS): number for number in gpus.values()}
        if ceiling.jobs is not None:
            limits[names.hard_name(namespaces[0], PODS)] = ceiling.jobs
        return Demand(limits=limits, notes=(*notes, _WAITING, *((_SLICES,) if gpus else ())))

    def _of_queue(
        self, account: str, objects: AccountObjects, ceiling: Ceiling
    ) -> tuple[dict[str, int], list[str]]:
        """What its ClusterQueue holds of it; nothing where a ResourceQuota has to, with the reason as a sentence."""
        if not ceiling.gpus or len(objects.queues) != 1 or not objects.queues[0].is_cluster:
            return {}, []
        if self.lookup.others_in(account, objects):
            return {}, []
        queue = objects.queues[0].queue
        try:
            limits = queue_quota.quota_limits(queue, ceiling.gpus)
        except ActRefusedError as error:
            if len(objects.namespaces) != 1 or any(ceiling.gpus):
                raise
            return {}, [str(error)]
        return limits, [*queue_quota.notes(queue, limits), _AROUND]

    def restored(self, value: Any) -> Any:
        """Ours goes; what is somebody else's stays."""
        if value == HOLD:
            return NONE
        return None if value in {0, YES} else value

    def set_limits(self, account: str, target: Limits, *, before: Limits, user: str = "") -> dict[str, Any]:
        """Bring the limits from `before` to `target`; what they are then, once they are obeyed.

        Each write is rehearsed before the first is sent, so that what one of them refuses is refused as a whole; a
        write that is refused later has the earlier ones taken back.
        """
        if user:
            raise _no_jobs(user)
        objects = self.lookup.find(account)
        current = names.read(objects)
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
        if open_names := names.without_effect(self.lookup.find(account), limits):
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

    def _writes(self, objects: AccountObjects, current: Limits, target: Limits) -> Iterator[Write]:
        return list_writes(objects, current, target, version=self.api.kueue if objects.queues else "")

    def _send_all(self, account: str, writes: list[Write], *, before: Limits) -> None:
        for count, write in enumerate(writes):
            try:
                self._send(write)
            except ConnectorError as error:
                if count and not error.retry:
                    self._take_back(account, before)
                raise

    def _send(self, write: Write, *, rehearse: bool = False) -> None:
        if write.body is None:
            self.api.delete(
                write.path, uid=write.uid, version=write.version, what=write.what, rehearse=rehearse
            )
        else:
            self.api.apply(write.path, write.body, what=write.what, manager=write.manager, rehearse=rehearse)

    def _take_back(self, account: str, before: Limits) -> None:
        """What a refusal left half done. What cannot be taken back now leaves the act open, to be looked at."""
        try:
            objects = self.lookup.find(account)
            for write in self._writes(objects, names.read(objects), before):
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


def _notes(objects: AccountObjects, *, submits: bool, drains: bool) -> Iterator[str]:
    if objects.without_queue:
        yield from _KEEPS
    if objects.queues:
        yield _AROUND
    if submits and not objects.namespaces:
        yield _NO_REFUSAL
    if drains:
        yield _COMES_BACK
