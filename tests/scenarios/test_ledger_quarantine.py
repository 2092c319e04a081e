"""What cannot be true is kept aside with its reason, and never billed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from billing.rating import ingest as usage_ingest
from clusters.connectors.base import BadRow, Reading
from clusters.models import Quarantined, UsageRecord
from tests.builders import LATER, a_bad_row, a_cluster, a_job, a_plan, a_tenant, ingest
from tests.stories import hours, prove, seconds

pytestmark = pytest.mark.django_db


def test_a_bad_row_is_kept_once_with_its_reason_and_raw_line() -> None:
    cluster = a_cluster()

    assert ingest(cluster, a_bad_row(line=17)).stored.quarantined == 1
    assert ingest(cluster, a_bad_row(line=18), a_bad_row(raw="other|")).stored.quarantined == 2

    rows = Quarantined.objects.order_by("pk")
    assert [(row.code, row.raw, row.line) for row in rows] == [
        ("truncated", "17|vision|", 18),
        ("truncated", "other|", None),
    ]
    assert rows[0].reason.startswith("The row has too few fields")
    assert prove() == dict.fromkeys(("allocated", "billed", "waived", "pending", "unassigned"), 0)


def test_a_row_in_quarantine_keeps_the_values_of_its_sentence_and_says_it_where_it_is_read() -> None:
    ingest(a_cluster(), a_job(gpus=-1), a_bad_row(code="state", values={"text": "\x00\ud800{0}"}, raw="7|"))

    counted, odd = Quarantined.objects.order_by("raw")[::-1]
    assert (counted.code, counted.values) == (
        "impossible-count", {"field": "gpus", "count": -1, "seconds": 3600},
    )  # fmt: skip
    assert counted.reason == "gpus = -1 for 3600 s cannot be."
    assert odd.reason.startswith(r"State \x00\ud800{0} is not a state")


def test_a_row_of_an_older_release_is_said_as_far_as_it_can_be() -> None:
    assert Quarantined(code="of-old", values={}).reason == "of-old"
    assert Quarantined(code="state", values={}).reason.startswith("State … is not a state")


@pytest.mark.parametrize(
    ("code", "untrue"),
    [
        ("from-the-future", {"ended": "2030-01-01 00:06"}),
        ("from-the-future", {"started": "2030-01-02 00:00", "ended": None, "seen_until": "2030-01-03"}),
        ("end-before-start", {"ended": "2026-03-02 09:59"}),
        ("end-without-start", {"started": None, "submitted": "2026-03-02 09:00"}),
        ("end-unknown", {"ended": None}),
        ("suspended-too-long", {"suspended": 3601}),
        ("suspended-too-long", {"suspended": -1}),
        ("impossible-count", {"gpus": -1}),
        ("impossible-count", {"memory_mib": -1}),
        ("impossible-count", {"gpus": 2**31}),
        ("impossible-count", {"memory_mib": 2**53}),  # × 3,600 s is more than 64 bits hold
        ("impossible-count", {"cpu_milli": 2**52}),
        ("impossible-share", {"gpu_share": (8, 7)}),
        ("impossible-share", {"gpu_share": (0, 7)}),
        ("no-key", {"source_key": ""}),
        ("too-long-name", {"account": "a" * 256}),
        ("impossible-text", {"name": "train\x00"}),
        ("before-the-epoch", {"started": "1969-12-31 23:59"}),
        ("before-the-epoch", {"started": "1970-01-01 00:00"}),
    ],
)
def test_case_012_a_row_that_cannot_be_true_is_never_billed(code: str, untrue: dict[str, Any]) -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])

    stored = ingest(cluster, a_job(**untrue), a_job()).stored

    assert (stored.new, stored.quarantined) == (1, 1)
    assert Quarantined.objects.get().code == code
    assert seconds(vision) == hours(1)
    assert UsageRecord.objects.count() == 1
    prove()


def test_an_open_run_that_cannot_be_true_is_one_row_however_often_it_is_seen() -> None:
    cluster = a_cluster()
    for seen_until, suspended in (
        ("2026-03-02 11:00", 0),
        ("2026-03-02 12:00", 60),
        ("2026-03-02 13:00", 90),
    ):
        fields = {"job_id": "7", "source_key": "7@1", "gpus": -1}
        ingest(cluster, a_job(**fields, ended=None, seen_until=seen_until, suspended=suspended))

    assert Quarantined.objects.get().code == "impossible-count"
    ingest(cluster, a_job(**fields))
    assert Quarantined.objects.count() == 2


def test_clocks_of_nodes_may_run_five_minutes_ahead() -> None:
    assert ingest(a_cluster(), a_job(ended="2030-01-01 00:05")).stored.new == 1
    assert LATER.year == 2030


def test_a_good_row_of_the_same_key_resolves_it() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    fields = {"job_id": "7", "source_key": "7@1"}
    ingest(cluster, a_job(**fields, ended="2026-03-02 09:00"))
    assert seconds(vision) == 0

    ingest(cluster, a_job(**fields, ended="2026-03-02 12:00"))

    row = Quarantined.objects.get()
    assert (row.resolved_at, row.resolution) == (LATER, "A good row of the same key was read.")
    assert seconds(vision) == hours(2)


def test_an_old_snapshot_does_not_resolve_a_newer_row_that_could_not_be_read() -> None:
    cluster = a_cluster()
    fields = {"job_id": "7", "source_key": "7@1"}
    snapshot = a_job(**fields, ended=None, seen_until="2026-03-02 12:00", state="RUNNING")
    ingest(cluster, snapshot)
    ingest(cluster, a_job(**fields, ended="2026-03-02 09:00"))

    ingest(cluster, snapshot)

    assert Quarantined.objects.get().resolved_at is None


def test_rows_of_other_keys_resolve_nothing() -> None:
    cluster, other = a_cluster(), a_cluster("gpu2")
    ingest(cluster, a_bad_row(source_key="7@1"), a_bad_row(raw="without a key"))

    ingest(cluster, a_job(source_key="8@1"))
    ingest(other, a_job(source_key="7@1"))

    assert Quarantined.objects.filter(resolved_at=None).count() == 2


def test_the_longest_and_widest_thing_that_can_be_true_is_stored_and_proved() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    exascale = {"gpus": 80_000, "cpu_milli": 2_000_000_000, "memory_mib": 10_000_000_000, "nodes": 20_000}

    ingest(cluster, a_job(**exascale, started="2025-01-01", ended="2026-01-01"))

    assert seconds(vision) == 80_000 * 365 * 86_400
    prove()


def test_rows_of_a_megabyte_each_are_stored_few_at_a_time() -> None:
    """Five thousand of them in one transaction would be five gigabytes of memory."""
    rows = [BadRow(code="too-long", raw=f"{number}|" + "A" * (1 << 20)) for number in range(40)]
    stored: list[int] = []
    usage_ingest.ingest(
        cluster=a_cluster(), rows=rows, reading=Reading(), source="a.sacct", moment=LATER,
        progress=lambda so_far: stored.append(so_far.quarantined),
    )  # fmt: skip
    assert stored[-1] == Quarantined.objects.count() == 40
    assert max(now - before for before, now in pairwise([0, *stored])) < 12
