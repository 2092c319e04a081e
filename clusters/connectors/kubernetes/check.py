"""What "Test connection" asks of an API server: who we are, what we may, what the nodes have, which Kueue."""

from __future__ import annotations

from clusters.connectors.base import ConnectorError
from clusters.connectors.findings import Finding, Findings
from clusters.connectors.kubernetes import queue_quota
from clusters.connectors.kubernetes.accounts import AccountLookup
from clusters.connectors.kubernetes.queue_quota import Slot
from clusters.connectors.kubernetes.rights import RIGHTS, Right, manifest
from portal.excerpt import excerpt

SUBJECT = "API server"
RIGHTS_SUBJECT = "Rights"


def examine(lookup: AccountLookup) -> list[Finding]:
    """What was found. Raises nothing and changes nothing."""
    check = _Check(lookup)
    try:
        check.run()
    except ConnectorError as error:
        check.fail(SUBJECT, str(error))
    return check.findings


class _Check(Findings):
    def __init__(self, lookup: AccountLookup) -> None:
        self.lookup = lookup
        self.api = lookup.api
        self.findings: list[Finding] = []

    def run(self) -> None:
        missing = self._missing()
        self.ok(SUBJECT, f"{self.api.address} takes the token.")
        if missing:
            self.fail(
                RIGHTS_SUBJECT,
                f"The token may not {', '.join(missing)}: nothing can be blocked before it may.",
                f"kubectl apply --filename - <<'MANIFEST'\n{manifest()}MANIFEST",
            )
            return
        self.ok(RIGHTS_SUBJECT, "The token has all rights that blocking needs.")
        version = self.api.kueue
        if version:
            self.ok("Kueue", f"Queues are stopped over {version}.")
            self._check_quotas()
        else:
            self.ok("Kueue", "There is none: namespaces get a ResourceQuota of ours.")
        self.ok(
            "GPU resources", f"A ResourceQuota bars {excerpt(', '.join(self.lookup.gpu_resources()), 400)}."
        )

    def _check_quotas(self) -> None:
        """Of each ClusterQueue that is an account's alone, how a limit of GPUs is held."""
        for queue in self.lookup.list_dedicated():
            subject, slots = f"ClusterQueue {queue.metadata.name}", queue_quota.slots(queue)
            owned = next((one.value for one in slots if not isinstance(one.value, int)), None)
            if not slots or owned is not None:
                whose = f"its quotas are managed elsewhere ({owned})" if slots else "it has no quota of GPUs"
                self.ok(subject, f"Limits of GPUs are written as a ResourceQuota of ours, since {whose}.")
            else:
                self.ok(subject, f"Limits of GPUs are its nominalQuota: {', '.join(map(_flavor, slots))}.")

    def _missing(self) -> list[str]:
        return [
            f"{verb} {right.resource}"
            for right in RIGHTS
            for verb in right.verbs
            if not self._may(right, verb)
        ]

    def _may(self, right: Right, verb: str) -> bool:
        return self.api.may(verb, group=right.group, resource=right.resource, name=right.name)


def _flavor(slot: Slot) -> str:
    return f"{slot.value} of {slot.flavor}"
