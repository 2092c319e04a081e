"""What a person is told of each `ConnectorError` of a Kubernetes API server: its sentence by its code."""

from __future__ import annotations

from collections.abc import Mapping


def _(text: str) -> str:
    """Marks a sentence for gettext, which translates it where it is said."""
    return text


SENTENCES: Mapping[str, str] = {
    "no-kubernetes-api": _(
        "{cluster} has no connection to its Kubernetes API server, over which accounts are blocked: "
        "docs/how-to/connect-kubernetes.md says how to give it one."
    ),
    "kubernetes-no-jobs": _(
        "In Kubernetes accounts are blocked and unblocked; its jobs are not held, released or canceled from here."
    ),
    "kubernetes-login-refused": _(
        "{address} does not accept the token: make one with `kubectl create token clustertab --namespace clustertab` "
        "and enter it."
    ),
    "kubernetes-forbidden": _(
        "The token has no right to {what} ({words}): `test_connection` prints what to grant."
    ),
    "kubernetes-gone": _("{address} has no {what} ({words})."),
    "kubernetes-webhook-refused": _("A webhook of the cluster refuses the change of {what}: {words}"),
    "kubernetes-webhook-down": _(
        "A webhook that has to agree to the change of {what} does not answer: {words}"
    ),
    "kubernetes-field-owned": _(
        "Somebody else manages {words} of {what}, so it is left as it is. Take the field out of their manifest and "
        "apply that with `kubectl apply --server-side`."
    ),
    "kubernetes-changed": _("{what} changed at the same moment, so nothing was done: {words}"),
    "kubernetes-question-refused": _("{address} refuses {what}: {words}"),
    "kubernetes-busy": _("{address} is asked too often; nothing was done to {what}."),
    "kubernetes-trouble": _("{address} cannot answer for {what}: {words}"),
    "kubernetes-redirect": _(
        "{address} answers with another address: give the API server's own, as `kubectl cluster-info` prints it."
    ),
    "kubernetes-form-unknown": _(
        "{address} answered with what no Kubernetes API server says ({reason}): check the address."
    ),
    "kubernetes-no-pods": _("The preset {preset} reads no pods, so no account of it can be blocked."),
    "kubernetes-account-unmapped": _(
        "Accounts are read from the pods' label {label}, and no object of the cluster stops just those pods: only "
        "namespaces and queues of Kueue can be blocked."
    ),
    "kubernetes-limit-of-model": _(
        "Kubernetes cannot limit GPUs of the model {model} alone: set a limit of all GPUs."
    ),
    "kubernetes-limit-of-namespaces": _(
        "{account} has {count} namespaces, and a ResourceQuota cannot span several: limit accounts of one namespace."
    ),
    "kubernetes-limit-of-queue": _(
        "{account} is a queue, and a ResourceQuota is of a namespace: limit its GPUs, and name its ClusterQueue among "
        "those that are one account's alone."
    ),
    "kubernetes-drain-without-queue": _(
        "In {namespace} are pods without a queue of Kueue, which alone can end what runs: give it a LocalQueue."
    ),
    "kueue-quota-none": _("ClusterQueue {queue} has no quota of {resource} that could be changed."),
    "kueue-quota-owned": _(
        "The quotas of ClusterQueue {queue} are managed elsewhere ({value}), so they are left as they are: "
        "docs/how-to/connect-kubernetes.md says how to hand them over."
    ),
    "kueue-quota-of-model": _(
        "ClusterQueue {queue} has no flavor {model}, only {names}: a limit of a GPU model is written to the flavor of "
        "its name."
    ),
    "kueue-quota-of-flavors": _(
        "ClusterQueue {queue} has quotas of several flavors: limit each by its name as GPU model, {names}."
    ),
    "kubernetes-no-queue": _("No LocalQueue of Kueue is, or leads to, the queue {account}."),
    "kubernetes-no-namespace": _("No namespace has {label} with the value {account}."),
    "kubernetes-limits-changed": _("Somebody has changed what stops {account}: {differences}. Plan again."),
    "kubernetes-limits-without-effect": _(
        "The cluster took the change for {account} and has something else, so it was taken back: {differences}"
    ),
    "kubernetes-not-obeyed": _(
        "It is written, and the cluster does not obey it yet: {names}. See whether Kueue and "
        "kube-controller-manager run."
    ),
    "kubernetes-half-done": _("What was done for {account} in part could not be taken back: {reason}"),
    "kubernetes-quota-foreign": _(
        "{what} is somebody else's and is left as it is: rename it, since ours has this name."
    ),
    "kueue-missing": _("{address} has no Kueue, although accounts are read from its queues."),
    "kueue-version-unknown": _(
        "Kueue serves the versions {versions} of its API; v1beta1 or v1beta2 is needed."
    ),
}
