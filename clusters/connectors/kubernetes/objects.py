"""Objects of a Kubernetes API as typed values: only what is read of them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

ACTIVE = "Active"


class ManagedEntry(Struct):
    """The fields of an object that one manager set."""

    manager: str = ""
    operation: str = ""  # Apply, Update
    subresource: str = ""
    fields: dict[str, Any] = field(default_factory=dict, name="fieldsV1")


class Metadata(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = field(default="", name="resourceVersion")
    generation: int = 0
    labels: dict[str, str] | None = None
    managed: list[ManagedEntry] = field(default_factory=list, name="managedFields")

    def managers(self, *path: str) -> list[str]:
        """Who owns the field: `managers("spec", "stopPolicy")`. Nobody owns what the schema sets by default."""
        owners = []
        for entry in self.managed:
            inner: Any = entry.fields
            for name in path:
                inner = inner.get(f"f:{name}") if isinstance(inner, dict) else None
            if inner is not None and not entry.subresource:
                owners.append(entry.manager)
        return owners

    def owner(self, us: str, *path: str) -> str:
        """`us` where the field is ours alone: what somebody else owns too stays when we give it up."""
        owners = self.managers(*path)
        return next((one for one in owners if one != us), us if owners else "somebody else")


class Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    generation: int | None = field(default=None, name="observedGeneration")


class QueueSpec(Struct):
    cluster_queue: str = field(default="", name="clusterQueue")
    stop_policy: str | None = field(default=None, name="stopPolicy")
    resource_groups: list[dict[str, Any]] | None = field(default=None, name="resourceGroups")
    cohort: str | None = None  # v1beta1
    cohort_name: str | None = field(default=None, name="cohortName")  # v1beta2


class QueueStatus(Struct):
    conditions: list[Condition] | None = None


class Queue(Struct):
    """A LocalQueue or ClusterQueue of Kueue, in each version that we know."""

    metadata: Metadata
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: QueueStatus = field(default_factory=QueueStatus)

    @property
    def is_stopped(self) -> bool:
        """Whether Kueue has seen its newest state, and admits nothing from it."""
        one = self._seen()
        return one is not None and one.status == "False"

    @property
    def is_seen(self) -> bool:
        """Whether Kueue has seen its newest state."""
        return self._seen() is not None

    def _seen(self) -> Condition | None:
        for one in self.status.conditions or ():
            if one.type == ACTIVE:
                is_new = one.generation is None or one.generation >= self.metadata.generation
                return one if is_new else None
        return None


class Hard(Struct):
    hard: dict[str, str | int] | None = None


class Quota(Struct):
    """A ResourceQuota."""

    metadata: Metadata
    spec: Hard = field(default_factory=Hard)
    status: Hard = field(default_factory=Hard)


class Namespace(Struct):
    metadata: Metadata


class NodeStatus(Struct):
    capacity: dict[str, str | int] | None = None


class Node(Struct):
    status: NodeStatus = field(default_factory=NodeStatus)


class Version(Struct):
    version: str


class ApiGroup(Struct):
    """What versions of a group the server has."""

    versions: list[Version] = field(default_factory=list)


class ReviewStatus(Struct):
    allowed: bool = False


class AccessReview(Struct):
    status: ReviewStatus = field(default_factory=ReviewStatus)


class Cause(Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(Struct):
    causes: list[Cause] | None = None


class Status(Struct):
    """What an API server answers instead of what was asked for."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    details: Details | None = None
