"""What would bill a job twice, or close a month on half a file, is refused or held."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management.base import CommandError
from django.db import DatabaseError, transaction

from clusters.models import Account, Cluster
from portal.core.tenants import ownership
from portal.core.tenants.models import Ownership
from tests import builders, stories
from tests.builders import at
from tests.scenarios.real import run

pytestmark = pytest.mark.django_db

HEADER = "JobIDRaw|User|Account|State|AllocTRES|Submit|Start|End|ElapsedRaw|JobName\n"
DAY = "2026-03-02T"
ROW = (
    f"{{0}}|ben|vision|COMPLETED|cpu=1,gres/gpu=1|{DAY}{{1}}:00:00|{DAY}{{1}}:00:00|{DAY}{{1}}:30:00|1800|a\n"
)


def test_a_cluster_keeps_the_zone_that_its_jobs_were_read_in(tmp_path: Path) -> None:
    cluster = builders.a_cluster("farm")
    builders.ingest(cluster, builders.a_job())
    (tmp_path / "farm.toml").write_text('[[cluster]]\nname = "farm"\ntimezone = "America/Los_Angeles"\n')
    with pytest.raises(CommandError, match="Give the other zone to a new cluster"):
        run("apply", tmp_path / "farm.toml")
    with pytest.raises(DatabaseError, match="Give the other zone to a new cluster"), transaction.atomic():
        Cluster.objects.update(timezone="America/Los_Angeles")


def test_a_cluster_without_usage_may_change_its_zone(tmp_path: Path) -> None:
    builders.a_cluster("farm")
    (tmp_path / "farm.toml").write_text('[[cluster]]\nname = "farm"\ntimezone = "America/Los_Angeles"\n')
    run("apply", tmp_path / "farm.toml")
    assert Cluster.objects.get().timezone == "America/Los_Angeles"


def test_a_file_that_ends_in_a_torn_line_proves_nothing(tmp_path: Path) -> None:
    builders.a_cluster("farm")
    whole = HEADER + ROW.format(1, 10) + ROW.format(2, 11)
    (tmp_path / "torn.sacct").write_text(whole + ROW.format(3, 12)[:60])
    (tmp_path / "whole.sacct").write_text(whole + ROW.format(3, 12))

    torn = run("import_usage", "farm", tmp_path / "torn.sacct")
    assert (torn["new"], torn["quarantined"], torn["as_of"]) == (2, 1, None)
    assert "the watermark stays where it was" in torn["notes"][0]
    assert Cluster.objects.get().complete_through is None

    again = run("import_usage", "farm", tmp_path / "whole.sacct")
    assert (again["new"], again["unchanged"], again["as_of"]) == (1, 2, "2026-03-02T12:30:00Z")


def test_an_account_that_is_lent_for_a_week_goes_back_to_its_owner() -> None:
    cluster = builders.a_cluster()
    plan = builders.a_plan()
    ann = builders.a_tenant("ann", plan=plan, accounts=[(cluster, "vision")])
    eve = builders.a_tenant("eve", plan=plan)
    for day in ("02", "06", "12"):
        builders.ingest(cluster, builders.a_job(started=f"2026-03-{day} 10:00", ended=f"2026-03-{day} 11:00"))

    builders.own(eve, cluster, "vision", since="2026-03-05", until="2026-03-10")

    assert (stories.seconds(ann), stories.seconds(eve)) == (2 * 3600, 3600)
    spans = Ownership.objects.order_by("since").values_list("tenant__slug", "since", "until")
    assert set(spans) == {
        ("ann", None, at("2026-03-05")),
        ("eve", at("2026-03-05"), at("2026-03-10")),
        ("ann", at("2026-03-10"), None),
    }
    again = ownership.assign(
        account=Account.objects.get(), tenant=eve, since=at("2026-03-05"), until=at("2026-03-10")
    )
    assert (again.tenant, Ownership.objects.count()) == (eve, 3)
    stories.prove()
