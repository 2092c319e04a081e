"""What "Test connection" asks of an API server: who we are, what we may, what the nodes have, which Kueue."""

from __future__ import annotations

from clusters.connectors.base import ConnectorError
from clusters.connectors.findings import Finding, Findings
from clusters.connectors.kubernetes.accounts import AccountLookup
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
        else:
            self.ok("Kueue", "There is none: namespaces get a ResourceQuota of ours.")
        self.ok(
            "GPU resources", f"A ResourceQuota bars {excerpt(', '.join(self.lookup.gpu_resources()), 400)}."
        )

    def _missing(self) -> list[str]:
        return [
            f"{verb} {right.resource}"
            for right in RIGHTS
            for verb in right.verbs
            if not self._may(right, verb)
        ]

    def _may(self, right: Right, verb: str) -> bool:
        return self.api.may(verb, group=right.group, resource=right.resource, name=right.name)
