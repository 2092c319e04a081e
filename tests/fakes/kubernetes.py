"""A strict, stateful stand-in of a Kubernetes API server with Kueue on 127.0.0.1, for what no package here can run.

It does what the documentation of server-side apply says: who applied or updated a field owns it; applying another
value over somebody else's is a conflict; a field that its last manager leaves out goes, and what the schema has as
default comes back. Its two controllers, Kueue's and the one of quotas, write a status when they run.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from tests.fakes.kubernetes_fields import Fields, field_set, is_managed, leaves, put_leaf, remove_leaf
from tests.fakes.kubernetes_http import Call, KubernetesHttp
from tests.fakes.kubernetes_schemas import CRDS, SchemaError, check_object

TOKEN = "eyJhbGciOiJSUzI1NiJ9.clustertab.token"
MOMENT = "2026-03-05T12:00:00Z"
KUEUE_VERSIONS = ("v1beta1", "v1beta2")
PLURALS = {
    "namespaces": "Namespace",
    "nodes": "Node",
    "resourcequotas": "ResourceQuota",
    "localqueues": "LocalQueue",
    "clusterqueues": "ClusterQueue",
}
Key = tuple[str, str, str]
"""Plural, namespace ("" for those of the cluster), name."""

Answer = tuple[int, dict[str, Any]]


class RefusalError(Exception):
    def __init__(
        self, code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None
    ) -> None:
        super().__init__(message)
        details = {"details": {"causes": causes}} if causes else {}
        self.answer: Answer = (
            code,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": message,
                "reason": reason,
                "code": code,
                **details,
            },
        )


@dataclass
class Stored:
    """An object without `managedFields`, and who owns which of its leaves by which operation."""

    body: dict[str, Any]
    owners: dict[tuple[str, str], Fields] = field(default_factory=dict)


@dataclass
class StandIn:
    """`with StandIn() as kube: …` serves `kube.url`; `objects` is what it knows."""

    kueue: tuple[str, ...] = KUEUE_VERSIONS  # versions served; none: Kueue is not installed
    objects: dict[Key, Stored] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)  # "patch localqueues"
    webhook: Callable[[Call], str] = lambda _: ""  # why an admission webhook refuses the call
    controllers: bool = True  # Kueue's and that of quotas run
    breaks: Callable[[Call], bool] = lambda _: False  # the connection breaks before it takes effect
    loses: Callable[[Call], bool] = lambda _: False  # … after it has taken effect
    before: Callable[[Call], None] = lambda _: None  # called before the call is looked at
    page: int = 2  # objects on a page, whatever is asked for
    workloads: dict[str, tuple[str, str]] = field(
        default_factory=dict
    )  # admitted ones: namespace and LocalQueue
    calls: list[str] = field(default_factory=list)
    versions: int = 100

    def __enter__(self) -> Self:
        if not CRDS.is_dir():
            pytest.skip(
                f"Kueue's definitions are not here, by which the stand-in judges: put them into {CRDS}"
            )
        self._server = KubernetesHttp(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def writes(self) -> list[str]:
        """What was asked to be changed, but for rehearsals and questions about rights."""
        return [
            one
            for one in self.calls
            if not one.startswith(("GET ", "POST /apis/authorization")) and "dry run" not in one
        ]

    # What people and other programs do to it.

    def namespace(self, name: str, **labels: str) -> None:
        self._make(("namespaces", "", name), {"metadata": {"labels": labels}}, "kubectl-create")

    def node(self, name: str, capacity: dict[str, str]) -> None:
        self._make(("nodes", "", name), {"status": {"capacity": capacity}}, "kubelet")

    def cluster_queue(self, name: str, *, by: str = "argocd", **spec: Any) -> None:
        """`by` owns what stands in `spec`."""
        self._make(("clusterqueues", "", name), {"spec": spec}, by, operation="Apply")

    def local_queue(
        self, namespace: str, name: str, cluster_queue: str, *, by: str = "argocd", operation: str = "Apply"
    ) -> None:
        """One that was applied owns no default; one that was created by an update owns them too, as in Kubernetes."""
        spec = {"clusterQueue": cluster_queue}
        self._make(("localqueues", namespace, name), {"spec": spec}, by, operation=operation)

    def edit(
        self, plural: str, namespace: str, name: str, spec: dict[str, Any], *, by: str = "kubectl-edit"
    ) -> None:
        """Somebody's update: what they change is theirs, and nobody else's any more."""
        stored = self.objects[plural, namespace, name]
        new = copy.deepcopy(stored.body)
        new["spec"] = {**new.get("spec", {}), **spec}
        self._updated(stored, new, (by, "Update"))

    def take(self, plural: str, namespace: str, name: str) -> None:
        del self.objects[plural, namespace, name]

    def spec(self, plural: str, namespace: str, name: str) -> dict[str, Any]:
        spec: dict[str, Any] = self.objects[plural, namespace, name].body.get("spec", {})
        return spec

    def policy(self, namespace: str, name: str) -> str:
        """The stopPolicy of a LocalQueue, or of a ClusterQueue where the namespace is ""."""
        plural = "localqueues" if namespace else "clusterqueues"
        return str(self.spec(plural, namespace, name)["stopPolicy"])

    def run_controllers(self) -> None:
        """Kueue's and that of quotas, once, over all objects."""
        for (plural, namespace, _), stored in self.objects.items():
            body = stored.body
            if plural in {"localqueues", "clusterqueues"}:
                queue = self.objects.get(("clusterqueues", "", body["spec"].get("clusterQueue", "")))
                stops = [body, *([queue.body] if namespace and queue else [])]
                policies = {one["spec"].get("stopPolicy") for one in stops}
                stopped = policies != {"None"}
                if namespace and "HoldAndDrain" in policies:
                    self._evict(namespace, body["metadata"]["name"])
                body["status"] = {"conditions": [_active(not stopped, body["metadata"]["generation"])]}
            elif plural == "resourcequotas":
                hard = body.get("spec", {}).get("hard", {})
                body["status"] = {"hard": dict(hard), "used": dict.fromkeys(hard, "0")}

    def _evict(self, *queue: str) -> None:
        self.workloads = {pod: its for pod, its in self.workloads.items() if its != queue}

    # What it answers.

    def answer(self, call: Call) -> Answer | None:
        self.before(call)
        self.calls.append(str(call))
        if self.breaks(call):
            return None
        try:
            answer = self._route(call)
        except RefusalError as refused:
            return refused.answer
        if self.controllers:
            self.run_controllers()
        return None if self.loses(call) else answer

    def _route(self, call: Call) -> Answer:
        if call.token != TOKEN:
            raise RefusalError(401, "Unauthorized", "Unauthorized")
        if call.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            return self._review(call)
        if call.path == "/apis/kueue.x-k8s.io":
            if not self.kueue:
                raise RefusalError(404, "NotFound", "the server could not find the requested resource")
            versions = [{"groupVersion": f"kueue.x-k8s.io/{one}", "version": one} for one in self.kueue]
            return 200, {"kind": "APIGroup", "apiVersion": "v1", "versions": versions}
        version, plural, namespace, name = self._parsed(call.path)
        verb = {"GET": "get" if name else "list", "PATCH": "patch", "DELETE": "delete"}[call.method]
        if f"{verb} {plural}" in self.forbidden:
            who = 'User "system:serviceaccount:clustertab:clustertab"'
            raise RefusalError(
                403, "Forbidden", f"{plural} is forbidden: {who} cannot {verb} resource {plural}"
            )
        if call.method == "GET":
            return (
                self._get(version, plural, namespace, name)
                if name
                else self._list(call, version, plural, namespace)
            )
        if why := self.webhook(call):
            raise RefusalError(
                403, "Forbidden", f'admission webhook "vquota.example.org" denied the request: {why}'
            )
        return getattr(self, f"_{verb}")(call, version, (plural, namespace, name))  # type: ignore[no-any-return]

    def _parsed(self, path: str) -> tuple[str, str, str, str]:
        parts = path.strip("/").split("/")
        if parts[0] == "api" and parts[1] == "v1":
            version, rest = "v1", parts[2:]
        elif parts[:2] == ["apis", "kueue.x-k8s.io"] and parts[2] in self.kueue:
            version, rest = f"kueue.x-k8s.io/{parts[2]}", parts[3:]
        else:
            raise RefusalError(404, "NotFound", "the server could not find the requested resource")
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if rest[0] not in PLURALS or len(rest) > 2:
            raise RefusalError(404, "NotFound", "the server could not find the requested resource")
        return version, rest[0], namespace, rest[1] if len(rest) == 2 else ""

    def _review(self, call: Call) -> Answer:
        check_object(call.body)
        wish = call.body["spec"]["resourceAttributes"]
        allowed = f"{wish['verb']} {wish['resource']}" not in self.forbidden
        return 201, {**call.body, "metadata": {}, "status": {"allowed": allowed}}

    def _get(self, version: str, plural: str, namespace: str, name: str) -> Answer:
        return 200, self._shown(version, plural, self._existing((plural, namespace, name)))

    def _list(self, call: Call, version: str, plural: str, namespace: str) -> Answer:
        keys = sorted(key for key in self.objects if key[0] == plural and namespace in {"", key[1]})
        size = min(int(call.query["limit"]), self.page)
        begin = int(call.query.get("continue", "0"))
        items = [self._shown(version, plural, self.objects[key]) for key in keys[begin : begin + size]]
        following = {"continue": str(begin + size)} if begin + size < len(keys) else {}
        return 200, {
            "kind": f"{PLURALS[plural]}List",
            "apiVersion": version,
            "metadata": following,
            "items": items,
        }

    def _patch(self, call: Call, version: str, key: Key) -> Answer:
        body, manager = call.body, call.query.get("fieldManager", "")
        if call.kind != "application/apply-patch+yaml" or not manager:
            raise RefusalError(
                415, "UnsupportedMediaType", "the body of the request was in an unknown format"
            )
        named = (body["metadata"].get("name"), body["metadata"].get("namespace", ""))
        if body["apiVersion"] != version or body["kind"] != PLURALS[key[0]] or named != (key[2], key[1]):
            raise RefusalError(400, "BadRequest", "the object does not match the URL")
        try:
            check_object(body)
        except SchemaError as error:
            raise RefusalError(422, "Invalid", str(error)) from None
        uid = body["metadata"].get("uid")
        stored = copy.deepcopy(self.objects.get(key))
        if uid and (stored is None or stored.body["metadata"]["uid"] != uid):
            raise RefusalError(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        if key[1] and ("namespaces", "", key[1]) not in self.objects:
            raise RefusalError(404, "NotFound", f'namespaces "{key[1]}" not found')
        is_new = stored is None
        stored = stored or Stored(self._begun(key))
        self._applied(stored, body, manager, force=call.query.get("force") == "true")
        if call.query.get("dryRun") != "All":
            self.objects[key] = stored
        return 201 if is_new else 200, self._shown(version, key[0], stored)

    def _delete(self, call: Call, version: str, key: Key) -> Answer:
        stored = self._existing(key)
        check_object(call.body)
        for name, value in (call.body.get("preconditions") or {}).items():
            if stored.body["metadata"][name] != value:
                raise RefusalError(409, "Conflict", f"Precondition failed: {name} in precondition: {value}")
        if call.query.get("dryRun") != "All":
            del self.objects[key]
        return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _applied(self, stored: Stored, body: dict[str, Any], manager: str, *, force: bool) -> None:
        values = {path: value for path, value in leaves(body).items() if is_managed(path)}
        present = leaves(stored.body)
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f'conflict with "{owner}" using {stored.body["apiVersion"]}',
                "field": f".{'.'.join(path)}",
            }
            for (owner, operation), fields in stored.owners.items()
            for path in sorted(fields & values.keys())
            if (owner, operation) != (manager, "Apply") and present.get(path) != values[path]
        ]
        if causes and not force:
            raise RefusalError(409, "Conflict", f"Apply failed with {len(causes)} conflict(s)", causes)
        earlier = stored.owners.pop((manager, "Apply"), frozenset())
        others = frozenset().union(*stored.owners.values()) if stored.owners else frozenset()
        new = copy.deepcopy(stored.body)
        for path in earlier - values.keys() - others:
            remove_leaf(new, path)
        for path, value in values.items():
            put_leaf(new, path, value)
        if values:
            stored.owners[manager, "Apply"] = frozenset(values)
        self._kept(stored, new)

    def _updated(self, stored: Stored, new: dict[str, Any], who: tuple[str, str]) -> None:
        before, after = leaves(stored.body), leaves(new)
        changed = frozenset(
            path for path, value in after.items() if before.get(path) != value and is_managed(path)
        )
        stored.owners = {other: fields - changed for other, fields in stored.owners.items()}
        stored.owners[who] = stored.owners.get(who, frozenset()) | changed
        stored.owners = {other: fields for other, fields in stored.owners.items() if fields}
        self._kept(stored, new)

    def _kept(self, stored: Stored, new: dict[str, Any]) -> None:
        _default(new)
        if new.get("spec") != stored.body.get("spec"):
            new["metadata"]["generation"] = new["metadata"].get("generation", 0) + 1
        self.versions += 1
        new["metadata"]["resourceVersion"] = str(self.versions)
        stored.body = new

    def _make(self, key: Key, more: dict[str, Any], by: str, *, operation: str = "Update") -> None:
        stored = Stored(self._begun(key))
        new = copy.deepcopy(stored.body)
        for name, value in more.items():
            new[name] = {**new.get(name, {}), **value}
        if operation == "Update":
            _default(new)
        self._updated(stored, new, (by, operation))
        self.objects[key] = stored
        self.run_controllers()

    def _begun(self, key: Key) -> dict[str, Any]:
        plural, namespace, name = key
        group = "kueue.x-k8s.io/v1beta2" if "queue" in plural else "v1"
        metadata = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": MOMENT}
        if namespace:
            metadata["namespace"] = namespace
        return {"apiVersion": group, "kind": PLURALS[plural], "metadata": metadata}

    def _existing(self, key: Key) -> Stored:
        if key not in self.objects:
            raise RefusalError(404, "NotFound", f'{key[0]} "{key[2]}" not found')
        return self.objects[key]

    def _shown(self, version: str, plural: str, stored: Stored) -> dict[str, Any]:
        body = copy.deepcopy(stored.body)
        body["apiVersion"] = version
        body["metadata"]["managedFields"] = [
            {
                "manager": manager,
                "operation": operation,
                "apiVersion": version,
                "time": MOMENT,
                "fieldsType": "FieldsV1",
                "fieldsV1": field_set(paths),
            }
            for (manager, operation), paths in stored.owners.items()
        ]
        check_object(body)
        return body


def _active(active: bool, generation: int) -> dict[str, Any]:
    return {
        "type": "Active",
        "status": "True" if active else "False",
        "reason": "Ready" if active else "Stopped",
        "message": "Can submit new workloads" if active else "It is stopped",
        "lastTransitionTime": MOMENT,
        "observedGeneration": generation,
    }


def _default(body: dict[str, Any]) -> None:
    if "Queue" in body["kind"]:
        body.setdefault("spec", {}).setdefault("stopPolicy", "None")
