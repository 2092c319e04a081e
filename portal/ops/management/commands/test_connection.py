"""`test_connection CLUSTER`: is this cluster connected and set up so that its usage can be billed?"""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandParser

from clusters import connection_test
from clusters.connectors.findings import Finding, Level
from portal.ops.cli import Answer, OperatorCommand
from portal.ops.lookups import the_cluster

MARKS = {Level.OK: "ok  ", Level.WARN: "warn", Level.FAIL: "FAIL"}


class Command(OperatorCommand):
    help = (
        "Test the connection to a cluster, and say what mends what is not as it should be. Changes nothing."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")

    def answer(self, *, cluster: str, **_: Any) -> Answer:
        findings = connection_test.examine(cluster=the_cluster(cluster), clock=lambda: int(time.time()))
        failed = any(finding.level is Level.FAIL for finding in findings)
        data = {
            "cluster": cluster,
            "ok": not failed,
            "findings": [
                {
                    "level": finding.level.value,
                    "subject": finding.subject,
                    "sentence": finding.sentence,
                    "mend": finding.mend,
                }
                for finding in findings
            ],
        }
        return Answer(data, "\n".join(_lines(finding) for finding in findings), code=1 if failed else 0)


def _lines(finding: Finding) -> str:
    line = f"{MARKS[finding.level]}  {finding.subject}: {finding.sentence}"
    return f"{line}\n      mend: {finding.mend}" if finding.mend else line
