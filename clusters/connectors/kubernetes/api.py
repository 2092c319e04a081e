"""The API server of a Kubernetes cluster: typed reads, and server-side apply by our own field manager, never forced."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from clusters.connectors.acts import ActRefusedError
from clusters.connectors.base import Connected, ConnectorError, Secret
from clusters.connectors.http import Answer, Endpoint, Http
from clusters.connectors.kubernetes import faults
from clusters.connectors.kubernetes.objects import AccessReview, ApiGroup
from portal.excerpt import excerpt

MANAGER = "clustertab"
"""Our field manager: what it owns we have set, and nothing else do we change."""

QUOTA_MANAGER = "clustertab-limits"
"""That of the quotas of ClusterQueues. Another one, since an apply gives up what it leaves out."""

KUEUE = "kueue.x-k8s.io"
KUEUE_VERSIONS = ("v1beta2", "v1beta1")
"""Versions of Kueue's API that we write, by preference."""

TIMEOUT = 30  # seconds for one answer
LARGEST = 64 * 2**20  # bytes of one answer
PAGE = 250  # objects that are asked for at once
_APPLY = "application/apply-patch+yaml"  # JSON is YAML

T = TypeVar("T")


class KubernetesApi(Connected):
    """Every method raises `ConnectorError`."""

    def __init__(self, endpoint: Endpoint, token: Secret) -> None:
        self.http = Http(endpoint, largest=LARGEST)
        self._token = token
        self._kueue: str | None = None

    @property
    def address(self) -> str:
        return self.http.address

    def close(self) -> None:
        self.http.close()

    @property
    def kueue(self) -> str:
        """The version of Kueue's API to speak; "" where there is no Kueue. Raises ActRefusedError for others."""
        if self._kueue is None:
            try:
                group = self.get(f"/apis/{KUEUE}", ApiGroup, what="Kueue")
            except faults.NoObjectError:
                self._kueue = ""
                return ""
            served = {one.version for one in group.versions}
            version = next((one for one in KUEUE_VERSIONS if one in served), None)
            if version is None:
                names = ", ".join(sorted(served)) or "none"
                raise ActRefusedError("kueue-version-unknown", retry=False, versions=excerpt(names))
            self._kueue = version
        return self._kueue

    def get(self, path: str, kind: type[T], *, what: str) -> T:
        """One object. Raises NoObjectError where there is none."""
        row: T = self._read(self._call("GET", path, what=what), kind)
        return row

    def list(self, path: str, kind: type[T], *, what: str) -> Iterator[T]:
        """All objects of that kind, page by page."""
        pages = _Page[kind]  # type: ignore[valid-type]  # the kind is a value here
        after = ""
        while True:
            params = {"limit": str(PAGE), **({"continue": after} if after else {})}
            page: _Page[T] = self._read(self._call("GET", path, what=what, params=params), pages)
            yield from page.items
            after = page.metadata.following
            if not after:
                return

    def apply(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        what: str,
        manager: str = MANAGER,
        rehearse: bool = False,
    ) -> None:
        """Have the object's fields that are the manager's be these; those of its own that are left out are given up.

        `rehearse`: the server checks all of it, webhooks too, and keeps nothing. Raises FieldOwnedError.
        """
        params = {"fieldManager": manager, "force": "false", "fieldValidation": "Strict", **_dry(rehearse)}
        content = json.dumps(body, sort_keys=True).encode()
        self._call("PATCH", path, what=what, params=params, content=content, content_type=_APPLY)

    def delete(self, path: str, *, uid: str, version: str, what: str, rehearse: bool = False) -> None:
        """Delete the object if it is still just this one."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": version},
        }
        self._call("DELETE", path, what=what, params=_dry(rehearse), content=json.dumps(options).encode())

    def may(self, verb: str, *, group: str, resource: str, name: str = "") -> bool:
        """Whether the token may do that in every namespace. Nothing is kept of the question."""
        attributes = {"group": group, "resource": resource, "verb": verb, **({"name": name} if name else {})}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self._call("POST", path, what="the rights of the token", content=json.dumps(body).encode())
        review: AccessReview = self._read(answer, AccessReview)
        return review.status.allowed

    def _call(
        self,
        method: str,
        path: str,
        *,
        what: str,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        headers = {"accept": Secret("application/json")}
        if self._token:
            headers["authorization"] = Secret(f"Bearer {self._token.reveal()}")
        if content is not None:
            headers["content-type"] = Secret(content_type)
        answer = self.http.call(method, path, params=params, content=content, headers=headers)
        if 300 <= answer.status < 400:
            raise ConnectorError("kubernetes-redirect", retry=False, address=self.address)
        if answer.status not in {200, 201, 202}:
            raise faults.refusal(answer, what=what, address=self.address)
        return answer

    def _read(self, answer: Answer, kind: Any) -> Any:
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.MsgspecError as error:
            reason = excerpt(" ".join(str(error).split()))
        raise ConnectorError("kubernetes-form-unknown", retry=False, address=self.address, reason=reason)


class _ListMetadata(msgspec.Struct):
    following: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    items: list[T]
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


def _dry(rehearse: bool) -> dict[str, str]:
    return {"dryRun": "All"} if rehearse else {}
