"""What a real Prometheus missed, or told anew after a restart, on the invoices of who used it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from billing.models import RatedJob
from billing.rating import pulls
from billing.rating.pulls import Pulled
from clusters.connectors.prometheus import Scope, Utilisation
from clusters.models import Cluster, ClusterKind, IncompleteHour, UsageRecord, UtilisationHour
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_plan, a_seller, a_tenant
from tests.contracts.prometheus_reading import connector
from tests.contracts.prometheus_worlds import Worlds
from tests.integration.prom_lab import Lab
from tests.schedulers import a_connection
from tests.stories import closed, invoice_of, lines_of, prove, total

pytestmark = pytest.mark.django_db

H100 = "NVIDIA-H100-80GB-HBM3"
MINUTE = 60


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    world_set = Worlds(pushed_lab)
    _hole(world_set)
    _restart(world_set)
    world_set.push()
    return world_set


def _hole(worlds: Worlds) -> None:
    """The pod ends after 45 minutes. After 15 nobody looks for 40; later the samples of that time are there."""
    seen = worlds.new("hole", down=[(15 * MINUTE, 55 * MINUTE)])
    seen.node("n-1", product=H100)
    seen.pod("trains", until=45 * MINUTE)
    healed = worlds.new("hole@healed")
    healed.node("n-1", product=H100)
    healed.pod(
        "trains",
        phases=[(0, 45 * MINUTE, "Running"), (45 * MINUTE, None, "Succeeded")],
        completed=45 * MINUTE,
    )


def _restart(worlds: Worlds) -> None:
    """Both exporters restart after 20 minutes; that of the devices tells less than nothing then, and leaps."""
    world = worlds.new("anew", down=[(20 * MINUTE, 25 * MINUTE)])
    world.node("n-1", product=H100)
    world.pod("trains")
    world.dcgm(
        [
            (0, 20 * MINUTE, 0.5),
            (25 * MINUTE, 30 * MINUTE, -0.5),
            (30 * MINUTE, 35 * MINUTE, 4294967295.0),
            (35 * MINUTE, None, 0.5),
        ],
        holder="trains",
    )


@pytest.fixture
def kube() -> Cluster:
    a_seller()
    cluster = a_cluster("kube", kind=ClusterKind.PROMETHEUS, complete_through="2027-01-01")
    a_connection(cluster)
    return cluster


@pytest.fixture
def team(kube: Cluster) -> Tenant:
    """At 2.00 per GPU-hour."""
    return a_tenant("team", plan=a_plan(), accounts=[(kube, "team")])


def _pulled(kube: Cluster, worlds: Worlds, name: str, minutes: int, *, scope: Scope = Scope.OFF) -> Pulled:
    """Read that cluster of the Prometheus through the first so many minutes."""
    begin = datetime.fromtimestamp(worlds.begin, UTC)
    done = pulls.pull(
        kube,
        since=begin,
        until=begin + timedelta(minutes=minutes),
        moment=begin + timedelta(hours=3),
        connect=lambda *_, **__: connector(
            worlds.url,
            clock=lambda: int(time.time()),
            matcher=f'cluster="{name}"',
            utilisation=Utilisation(scope=scope),
        ),
    )
    assert not done.error, done.error
    return done


def _months(worlds: Worlds) -> tuple[str, str]:
    """The month in which it was used, and the next one."""
    first = datetime.fromtimestamp(worlds.begin, UTC).replace(day=1)
    return f"{first:%Y-%m}", f"{first + timedelta(days=32):%Y-%m}"


def _on(month: str) -> str:
    return f"{int(month[:4]) + 1}-01-03"


def test_case_019_a_hole_of_forty_minutes_is_kept_marked_and_mended_by_the_samples_that_come_later(
    worlds: Worlds, kube: Cluster, team: Tenant
) -> None:
    used, then = _months(worlds)
    _pulled(kube, worlds, "hole", 110)

    assert [hour.seen for hour in IncompleteHour.objects.order_by("begins")] == [33]  # percent
    blocked = closed(used, team, on=_on(used))
    assert blocked.outcome == "blocked"
    assert "kube was not watched all along in 1 hour" in blocked.reason
    assert closed(used, team, on=_on(used), accept="The monitoring host was down.").outcome == "issued"
    first = invoice_of(team, used)
    assert total(first) == "0.50"
    assert RatedJob.objects.get().state == "Unknown (estimated end)"

    for _ in range(2):
        _pulled(kube, worlds, "hole@healed", 110)
    assert not IncompleteHour.objects.exists()
    closed(then, team, on=_on(then), accept="Nothing is read beyond.")

    (line,) = lines_of(invoice_of(team, then))
    assert (line.correction, line.service_period, total(line.invoice)) == (True, first.period, "1.00")
    assert RatedJob.objects.get().state == "Succeeded"
    record = UsageRecord.objects.get()
    assert (record.started, record.ended) == (worlds.begin, worlds.begin + 45 * MINUTE)
    first.refresh_from_db()
    assert total(first) == "0.50"
    assert prove()["billed"] == 45 * MINUTE


def test_case_020_exporters_that_restart_make_no_second_run_none_shorter_and_nothing_out_of_bounds(
    worlds: Worlds, kube: Cluster, team: Tenant
) -> None:
    used, _ = _months(worlds)
    for minutes in (18, 24, 28, 110, 24, 110):
        _pulled(kube, worlds, "anew", minutes, scope=Scope.DEVICE)

    record = UsageRecord.objects.get()
    assert (record.started, record.ended) == (worlds.begin, None)
    (hour,) = UtilisationHour.objects.all()
    assert hour.busy == hour.covered / 2
    assert (
        2400 < hour.covered <= 2700
    )  # of an hour without the five minutes each of silence, below nothing and leaps
    closed(used, team, on=_on(used), accept="The exporters were restarted.")
    assert total(invoice_of(team, used)) == "3.67"  # 110 minutes
    assert prove()["billed"] == 110 * MINUTE
