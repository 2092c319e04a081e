"""The rights that blocking needs in a Kubernetes cluster, and the manifest that grants just these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clusters.connectors.kubernetes.accounts import QUOTA_NAME
from clusters.connectors.kubernetes.api import KUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Verbs on a kind of object; `name`: on the one object of that name in each namespace; `use`: what for."""

    group: str = ""
    resource: str
    verbs: tuple[str, ...]
    name: str = ""
    use: str


RIGHTS = (
    Right(resource="namespaces", verbs=("get", "list"), use="which namespaces an account has"),
    Right(resource="nodes", verbs=("list",), use="what GPUs and MIG slices are called"),
    Right(resource="resourcequotas", verbs=("create",), use="blocks and limits without Kueue"),
    Right(
        resource="resourcequotas",
        verbs=("get", "patch", "delete"),
        name=QUOTA_NAME,
        use="blocks and limits without Kueue",
    ),
    Right(
        group=KUEUE,
        resource="localqueues",
        verbs=("get", "list", "patch"),
        use="stopPolicy: Hold; HoldAndDrain where budgets may end running jobs",
    ),
    Right(
        group=KUEUE,
        resource="clusterqueues",
        verbs=("get", "patch"),
        use="the same, and nominalQuota, of those that are one account's alone",
    ),
)
"""A name cannot limit who creates: of ResourceQuotas any can be made, and ours alone changed or deleted."""


def manifest() -> str:
    """A namespace, a service account in it, and its rights, as YAML for `kubectl apply`."""
    return f"""\
apiVersion: v1
kind: Namespace
metadata: {{name: clustertab}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: clustertab, namespace: clustertab}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: clustertab}}
rules:
{"".join(map(_rule, RIGHTS))}---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: clustertab}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: clustertab}}
subjects:
- {{kind: ServiceAccount, name: clustertab, namespace: clustertab}}
"""


def _rule(right: Right) -> str:
    names = f", resourceNames: {_list([right.name])}" if right.name else ""
    groups, resources = _list([right.group]), _list([right.resource])
    rule = f"- {{apiGroups: {groups}, resources: {resources}{names}, verbs: {_list(right.verbs)}}}\n"
    return f"# {right.use}\n{rule}"


def _list(words: Iterable[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return f"[{', '.join(quoted)}]"
