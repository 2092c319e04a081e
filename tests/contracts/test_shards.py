"""Shards of GPUs in rows of sacct and of slurmdbd: exact parts by the operator's rows, and never a guess.

The lists are as Slurm 22.05.8 and 26.05.5 printed them (`tests/integration/test_slurm_shards.py`): `gres/shard`
without a model, also where `gres/shard:a100` is in AccountingStorageTRES and asked for. None had GPUs and shards in
one row, since sbatch refuses to ask for both; nor a model, which is read as that of GPUs is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusters.connectors.base import BadRow, ConnectorError, Reading, UsageFact
from clusters.connectors.hostlist import node_names
from clusters.connectors.mig import own_shares
from clusters.connectors.sacct.text_export import open_export
from clusters.connectors.slurm import decode, resources, rows
from tests.contracts.sacct_exports import COLUMNS, UTC, row
from tests.contracts.slurm_recorded import NOW, a_job

FOUR = {"a100": {"shard": "1/4"}}
BY_NODES = {"a100": {"shard@gpu[1-2]": "1/4", "shard@gpu3": "1/8"}, "h100": {"shard@gpu4": "1/4"}}
ONE_BESIDE = {"a100": {"shard": "1/4", "shard@gpu3": "1/8"}}
TWO_MODELS = {"a100": {"shard": "1/4"}, "h100": {"shard": "1/8"}}


def of_sacct(path: Path, tres: str, nodes: str, table: object) -> Any:
    """The one row of an export; a running job is read by the longer path."""
    file = path / "export.txt"
    both: list[Any] = []
    for changed in ({}, {"State": "RUNNING", "End": "Unknown"}):
        file.write_text("|".join(COLUMNS) + "\n" + row(AllocTRES=tres, NodeList=nodes, **changed) + "\n")
        both += open_export(file, zone=UTC, shares=own_shares(table, "shares")).rows()
    plain, running = both
    assert shape(plain) == shape(running)
    return plain


def of_rest(tres: str, nodes: str, table: object) -> Any:
    listed = []
    for part in tres.split(","):
        name, _, count = part.partition("=")
        kind, _, of = name.partition("/")
        listed.append({"type": kind, "name": of or None, "count": int(count)})
    job = a_job(1, submit=NOW - 7200, start=NOW - 7200, end=NOW, tres={"allocated": listed}, nodes=nodes)
    reader = rows.RowReader(Reading(), shares=own_shares(table, "shares"))
    return reader.read(decode.one_job.read(json.dumps(job).encode()))


def shape(fact: Any) -> tuple[object, ...]:
    if isinstance(fact, BadRow):
        return fact.code, fact.reason
    assert isinstance(fact, UsageFact)
    return fact.gpus, fact.gpu_model, fact.mig_profile, fact.gpu_share


@pytest.mark.parametrize(
    ("tres", "nodes", "table", "expected"),
    [
        # Half a GPU, and one and a half.
        ("billing=1,cpu=1,gres/shard=2,node=1", "gpu1", FOUR, (2, "a100", "", (1, 4))),
        ("billing=1,cpu=1,gres/shard=6,node=1", "gpu1", FOUR, (6, "a100", "", (1, 4))),
        ("cpu=1,gres/shard=3", "gpu1", {"a100": {"shard": "1/7"}}, (3, "a100", "", (1, 7))),
        ("cpu=2,gres/shard=4,node=2", "gpu[1-2]", FOUR, (4, "a100", "", (1, 4))),
        ("cpu=1,gres/shard=2", "gpu1", {"": {"shard": "1/4"}}, (2, "", "", (1, 4))),
        # Nodes that a row names come before all others.
        ("cpu=2,gres/shard=4", "gpu[1-2]", BY_NODES, (4, "a100", "", (1, 4))),
        ("cpu=1,gres/shard=4", "gpu3", BY_NODES, (4, "a100", "", (1, 8))),
        ("cpu=1,gres/shard=4", "gpu3", ONE_BESIDE, (4, "a100", "", (1, 8))),
        ("cpu=1,gres/shard=4", "gpu9", ONE_BESIDE, (4, "a100", "", (1, 4))),
        ("cpu=2,gres/shard=4", "gpu2,gpu4", BY_NODES, (4, "a100+h100", "", (1, 4))),
        # By model and in all: two views of the same shards.
        ("gres/shard:a100=2,gres/shard=2", "gpu1", FOUR, (2, "a100", "", (1, 4))),
        ("gres/shard:a100=2", "gpu1", TWO_MODELS, (2, "a100", "", (1, 4))),
        ("gres/shard:h100=2,gres/shard=2", "gpu1", TWO_MODELS, (2, "h100", "", (1, 8))),
        ("gres/shard:a100-sxm4-40gb=2", "gpu1", TWO_MODELS, (2, "a100-sxm4-40gb", "", (1, 4))),
        ("gres/shard:a100=1,gres/shard:h100=2", "gpu1", TWO_MODELS, (4, "a100+h100", "", (1, 8))),
        ("gres/shard:a100=1,gres/shard=2", "gpu1", FOUR, (2, "a100", "", (1, 4))),
        # The same part of either model: how many is known, of which is not.
        ("gres/shard=2", "gpu1", {"a100": {"shard": "1/4"}, "l4": {"shard": "1/4"}}, (2, "", "", (1, 4))),
        # With whole GPUs, or slices of other ones: in their common fraction.
        ("gres/gpu:a100=1,gres/gpu=1,gres/shard=2", "gpu1", FOUR, (6, "a100", "", (1, 4))),
        ("gres/gpu=1,gres/shard=2", "gpu1", FOUR, (6, "", "", (1, 4))),
        ("gres/gpu:a100_1g.5gb=1,gres/shard=1", "gpu1", FOUR, (11, "a100", "1g.5gb", (1, 28))),
        # None held: no row is needed.
        ("gres/gpu:a100=1,gres/gpu=1,gres/shard=0", "gpu1", {}, (1, "a100", "", (1, 1))),
        # Nodes that are not told, where all rows agree.
        ("cpu=1,gres/shard=2", "", FOUR, (2, "a100", "", (1, 4))),
    ],
)
def test_a_shard_is_an_exact_part_of_its_gpu(
    tmp_path: Path, tres: str, nodes: str, table: object, expected: tuple[object, ...]
) -> None:
    assert shape(of_sacct(tmp_path, tres, nodes, table)) == expected
    assert shape(of_rest(tres, nodes, table)) == expected


@pytest.mark.parametrize(
    ("tres", "nodes", "table", "code", "part"),
    [
        ("cpu=1,gres/shard=2", "gpu1", {}, "tres-shard", "on gpu1, and the cluster does not say"),
        ("cpu=1,gres/shard=2", "gpu1", {"a100": {"1g.5gb": "1/7"}}, "tres-shard", "on gpu1"),
        ("cpu=1,gres/shard=2", "gpu9", BY_NODES, "tres-shard", "on gpu9"),
        ("cpu=2,gres/shard=2", "gpu[2,9]", BY_NODES, "tres-shard", "on gpu9"),
        ("gres/shard:h100=2", "gpu1", FOUR, "tres-shard", 'shard = "1/4" of a model'),
        ("cpu=2,gres/shard=2", "gpu[2-3]", BY_NODES, "tres-shard-parts", "on gpu[2-3], and by the shares"),
        ("cpu=1,gres/shard=2", "gpu1", TWO_MODELS, "tres-shard-parts", "may be 1/4, 1/8 of a GPU there"),
        ("cpu=1,gres/shard=2", "", ONE_BESIDE, "tres-shard-parts", "name the nodes of each"),
        ("cpu=1,gres/shard=2", "gpu[", ONE_BESIDE, "tres-shard-parts", "gpu["),
    ],
)
def test_shards_of_which_nothing_is_sure_are_neither_nothing_nor_a_gpu(
    tmp_path: Path, tres: str, nodes: str, table: object, code: str, part: str
) -> None:
    bad = of_sacct(tmp_path, tres, nodes, table)
    assert bad.code == code
    assert part in bad.reason
    assert bad.source_key == "4711@1767600000"
    assert shape(of_rest(tres, nodes, table)) == shape(bad)


def test_plain_rows_of_one_block_are_read_by_their_nodes(tmp_path: Path) -> None:
    file = tmp_path / "export.txt"
    held = [("gpu1", "2"), ("gpu3", "2"), ("gpu9", "2"), ("gpu2", "1")]
    lines = [
        row(JobIDRaw=str(number), AllocTRES=f"cpu=1,gres/shard={shards}", NodeList=node)
        for number, (node, shards) in enumerate(held, 1)
    ]
    plain = row(JobIDRaw="9", AllocTRES="cpu=1,gres/gpu:a100=1,gres/gpu=1", NodeList="gpu9")
    file.write_text("\n".join(["|".join(COLUMNS), *lines, plain]) + "\n")
    read = list(open_export(file, zone=UTC, shares=own_shares(BY_NODES, "shares")).rows())
    assert [shape(one)[0] for one in read] == [2, 2, "tres-shard", 1, 1]
    assert [shape(one)[3] for one in read if isinstance(one, UsageFact)] == [(1, 4), (1, 8), (1, 4), (1, 1)]


@pytest.mark.parametrize(
    "profile", ["shards", "Shard", "shard@", "shard@gpu[1-", "shard@gpu[2-x]", "shard=4"]
)
def test_a_row_that_would_never_be_read_is_refused(profile: str) -> None:
    with pytest.raises(ConnectorError, match=r"write shard, or shard@ and nodes as Slurm lists them"):
        own_shares({"a100": {profile: "1/4"}}, "shares")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", {"gpu1"}),
        ("gpu[01-03,7],cpu1", {"gpu01", "gpu02", "gpu03", "gpu7", "cpu1"}),
        ("r[1-2]n[1-2]", {"r1n1", "r1n2", "r2n1", "r2n2"}),
        ("gpu[09-10]-ib", {"gpu09-ib", "gpu10-ib"}),
    ],
)
def test_lists_of_nodes_are_read_as_slurm_writes_them(text: str, names: set[str]) -> None:
    assert node_names(text) == names


@pytest.mark.parametrize(
    "text", ["", "None assigned", "a,,b", "gpu[]", "gpu[1", "n[0-999999999]", "n[0-999][0-999]"]
)
def test_what_is_no_list_of_nodes_names_none(text: str) -> None:
    with pytest.raises(ValueError, match="node"):
        node_names(text)


def test_a_node_has_its_gpus_once() -> None:
    gres = "gpu:a100:4(S:0-1),shard:a100:16(S:0-1)"
    assert resources.gpu_models(gres) == {"a100": 4}
    assert resources.shards(gres) == 16
    assert resources.shards("gpu:a100:4") == resources.shards("gpu:0,shard:0") == 0
