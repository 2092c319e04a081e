"""Op connects the lab's Slurm as a cluster, pulls its usage with the real command, and looks at the records."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from django.core.management import call_command

from clusters.models import Cluster, Connection, Pull, UsageRecord
from portal.core.vault import seal
from tests.integration.slurm_lab import Lab
from tests.integration.slurm_oracle import SacctRow

ACCOUNTS = ("acme_research", "acme_prod", "globex", "initech")
DAY = 86_400


def connected(
    lab: Lab,
    name: str = "lab",
    *,
    url: str = "",
    user: str = "portal",
    token: str | None = None,
    **fields: Any,
) -> Cluster:
    """A cluster that is read from the lab, with its key unless a token is given, from the lab's beginning on."""
    cluster = Cluster.objects.create(name=name, kind=Cluster.Kind.SLURM)
    credentials = {"jwt_key": seal(lab.key())} if token is None else {"token": seal(token)}
    defaults = {
        "first_usage_from": moment(lab.began),
        "base_url": url or lab.url,
        "user": user,
        **credentials,
    }
    Connection.objects.create(cluster=cluster, **defaults | fields)
    return cluster


def pull(cluster: Cluster, *words: object) -> dict[str, Any]:
    """`pull_usage CLUSTER …`, which succeeds; its answer for programs."""
    answer = _pull_answer(cluster, *words)
    assert (answer["outcome"], answer["error"]) == ("done", None)
    return answer


def fails(cluster: Cluster, *words: object) -> str:
    """What the command says when it cannot, which the pass and the connection keep."""
    answer = _pull_answer(cluster, *words)
    assert answer["outcome"] == "failed"
    message: str = answer["error"]
    newest = Pull.objects.filter(cluster=cluster).latest("pk")
    assert (newest.outcome, newest.error) == (Pull.Outcome.FAILED, message)
    assert Connection.objects.get(cluster=cluster).last_error == message
    assert "Traceback" not in message
    return message


def refused(cluster: Cluster, *words: object) -> str:
    """The same, where nothing could be read at all: the ledger and the watermark are as they were."""
    before = watermark(cluster), ledger(cluster)
    message = fails(cluster, *words)
    assert (watermark(cluster), ledger(cluster)) == before
    return message


def _pull_answer(cluster: Cluster, *words: object) -> dict[str, Any]:
    output = StringIO()
    with suppress(SystemExit):  # the answer tells how it went
        call_command("pull_usage", cluster.name, *map(str, words), "--json", stdout=output)
    answer: dict[str, Any] = json.loads(output.getvalue())
    return answer


def watermark(cluster: Cluster) -> datetime | None:
    return Cluster.objects.get(pk=cluster.pk).complete_through


def record(cluster: Cluster, key: str) -> UsageRecord:
    return UsageRecord.objects.get(cluster=cluster, source_key=key)


def runs_of(cluster: Cluster, job_id: str) -> list[UsageRecord]:
    """The runs of a job, by the id that people write, oldest first."""
    return list(UsageRecord.objects.filter(cluster=cluster, job_id=job_id).order_by("submitted"))


def run_seconds(record: UsageRecord) -> int | None:
    """The seconds for which it held what it held; None while it runs or waits."""
    if record.ended is None or record.started is None:
        return None
    return record.ended - record.started - record.suspended


def compare(cluster: Cluster, oracle: dict[str, SacctRow]) -> None:
    """Every row of sacct is a record with its seconds and GPUs, and there is no other record."""
    records = UsageRecord.objects.filter(cluster=cluster)
    ours = {row.source_key: (row.job_id, row.name, row.gpus, run_seconds(row)) for row in records}
    theirs = {key: (row.job_id, row.name, row.gpus, row.seconds) for key, row in oracle.items()}
    same(ours, theirs)


def same(ours: Mapping[str, object], theirs: Mapping[str, object]) -> None:
    """Fails with what differs alone."""
    keys = sorted(ours.keys() | theirs.keys())
    differ = [
        f"{key}: {ours.get(key)} ≠ {theirs.get(key)}" for key in keys if ours.get(key) != theirs.get(key)
    ]
    assert not differ, "\n".join(differ)


def come_to_agree(read: Callable[[], tuple[Mapping[str, object], Mapping[str, object]]]) -> None:
    """The same, of a lab in which the stories of other processes run jobs: one that began or ended between the two
    readings is no difference, so both are read again, a few times."""
    for _ in range(4):
        ours, theirs = read()
        if ours == theirs:
            return
        time.sleep(2)
    same(*read())


def ledger(cluster: Cluster, *, without: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """All columns that two ways to the same records agree in, by source key.

    How often a record was written, and when it was last seen, is the way's own. An open record says until when it
    was seen running.
    """
    left_out = {
        "id",
        "source_key",
        "cluster_id",
        "account_id",
        "last_seen",
        "seen_until",
        "revision",
        *without,
    }
    fields = [field.attname for field in UsageRecord._meta.concrete_fields if field.attname not in left_out]
    rows = UsageRecord.objects.filter(cluster=cluster).values("source_key", "account__name", *fields)
    return {row.pop("source_key"): row for row in rows}


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def text(second: int) -> str:
    """As commands take a moment."""
    return moment(second).isoformat()
