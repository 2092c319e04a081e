"""Op says what a slice of a cluster is of its GPU, for accounting files as for live sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command

from clusters.models import Cluster, Quarantined, UsageRecord
from portal.ops.cli import RefusedError

pytestmark = pytest.mark.django_db

ROW = (
    "JobIDRaw|JobID|Account|User|State|Submit|Start|End|ElapsedRaw|AllocTRES|NCPUS|Partition|Cluster|Suspended\n"
    "7|7|vision|ben|COMPLETED|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T09:00:00|3600|"
    "cpu=1,gres/gpu:a100_1g.10gb=1,gres/gpu=1,node=1|1|gpu|atlas|00:00:00\n"
)


def applied(tmp_path: Path, shares: str) -> None:
    file = tmp_path / "clustertab.toml"
    file.write_text(f'[[cluster]]\nname = "atlas"\n{shares}\n')
    call_command("apply", str(file))


def test_a_row_of_the_file_holds_for_what_is_imported(tmp_path: Path) -> None:
    applied(tmp_path, 'shares = { a100 = { "1g.10gb" = "1/4" } }')
    export = tmp_path / "march.txt"
    export.write_text(ROW)
    call_command("import_usage", "atlas", str(export))
    (record,) = UsageRecord.objects.all()
    assert (record.share_num, record.share_den) == (1, 4)
    applied(tmp_path, "")
    assert Cluster.objects.get().shares == {"a100": {"1g.10gb": "1/4"}}


def test_a_share_that_is_none_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="write the part of a whole GPU as text"):
        applied(tmp_path, 'shares = { a100 = { "1g.10gb" = "5/4" } }')


SHARD_ROWS = ROW.replace("gres/gpu:a100_1g.10gb=1,gres/gpu=1", "gres/shard=2").replace(
    "Suspended\n", "Suspended|NodeList\n"
).replace("00:00:00\n", "00:00:00|gpu3\n")  # fmt: skip


def test_shards_are_quarantined_until_op_says_what_they_are_then_billed_as_parts(tmp_path: Path) -> None:
    applied(tmp_path, 'shares = { h100 = { "shard@gpu[7-8]" = "1/2" } }')
    export = tmp_path / "march.txt"
    export.write_text(SHARD_ROWS)
    call_command("import_usage", "atlas", str(export))
    (entry,) = Quarantined.objects.all()
    assert "It held shards of a GPU on gpu3, and the cluster does not say how many" in entry.reason
    assert not UsageRecord.objects.exists()
    applied(tmp_path, 'shares = { a100 = { shard = "1/4" }, h100 = { "shard@gpu[7-8]" = "1/2" } }')
    call_command("import_usage", "atlas", str(export))
    (record,) = UsageRecord.objects.all()
    assert (record.gpus, record.gpu_model, record.share_num, record.share_den) == (2, "a100", 1, 4)
    assert not Quarantined.objects.filter(resolved_at=None).exists()


def test_a_row_of_shards_that_names_no_nodes_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"write shard, or shard@ and nodes as Slurm lists them"):
        applied(tmp_path, 'shares = { a100 = { "shard@gpu[1-" = "1/4" } }')
