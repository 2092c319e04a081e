"""How old what a tenant sees is: Ann reads it of her clusters, now and over the last 30 days."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from clusters.freshness import freshness
from clusters.models import Account, Cluster, Connection, Pull, Telemetry
from clusters.usage import Mark
from portal.core.tenants.models import User
from portal.core.tenants.scope import acting_scope
from tests import builders
from tests.schedulers import a_connection
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

STATUS = "/t/vision-lab/status/"


@dataclass
class Lab:
    """The house whose cluster is read as each story says. Times are hours before `now`."""

    house: House
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    def ago(self, hours: float) -> datetime:
        return self.now - timedelta(hours=hours)

    def reads(self, hours: float, *, looked: float | None = None, cluster: Cluster | None = None) -> None:
        """A pass that ended then, over what there was ten seconds earlier."""
        ended = self.ago(hours)
        as_of = ended - timedelta(seconds=10) if looked is None else self.ago(looked)
        cluster = cluster or self.house.cluster
        self._passed(cluster, ended, as_of, Pull.Outcome.DONE)
        Cluster.objects.filter(pk=cluster.pk).update(complete_through=as_of)

    def fails(self, hours: float) -> None:
        self._passed(self.house.cluster, self.ago(hours), self.ago(hours), Pull.Outcome.FAILED)

    def reads_each_hour(self, since: int, until: int) -> None:
        for hours in range(since, until - 1, -1):
            self.reads(hours)

    def _passed(self, cluster: Cluster, ended: datetime, as_of: datetime, outcome: str) -> None:
        Pull.objects.create(
            cluster=cluster, source="slurm", started_at=as_of, ended_at=ended, outcome=outcome, as_of=as_of
        )

    @property
    def delays(self) -> list[tuple[float, float]]:
        """Begin and end."""
        marks = [Mark(c.name, c.complete_through) for c in Cluster.objects.order_by("name")]
        with acting_scope(self.house.vision):
            (one,) = freshness(marks, moment=self.now)
        hour = timedelta(hours=1)
        return [(round((self.now - d.since) / hour, 2), (self.now - d.until) / hour) for d in one.delays]

    def shown(self, person: User | None = None) -> str:
        return words(page(person or self.house.ann, STATUS))


@pytest.fixture
def lab() -> Lab:
    """Its cluster is pulled every five minutes, has a Prometheus beside it, and was never read before."""
    lab = Lab(a_house())
    Pull.objects.all().delete()
    Cluster.objects.update(complete_through=None)
    a_connection(lab.house.cluster, every=300)
    Telemetry.objects.create(
        cluster=lab.house.cluster, base_url="http://127.0.0.1:9090", complete_through=lab.ago(1)
    )
    return lab


def test_a_cluster_that_is_read_on_time_is_up_to_date(lab: Lab) -> None:
    lab.reads_each_hour(31 * 24, 0)
    text = lab.shown()
    assert "Nothing is behind." in text
    assert "gpu1 Up to date" in text
    assert "Read every 00:05:00 100 %" in text
    assert "No delays" in text
    assert lab.delays == []


def test_a_time_without_passes_is_a_delay_from_two_hours_on(lab: Lab) -> None:
    lab.reads_each_hour(100, 50)
    lab.fails(45)
    lab.reads_each_hour(40, 0)
    assert lab.delays == [(48, 40)]  # ten seconds earlier: so long ago the last pass before had looked
    text = lab.shown()
    assert "gpu1 Up to date" in text
    assert "08:00:10" in text
    assert re.search(r" 9[12](\.\d)? % ", text)  # of 100 hours since the first pass


def test_passes_that_look_no_further_make_one_delay(lab: Lab) -> None:
    """As where a source stands still, while asking it goes well."""
    lab.reads_each_hour(20, 10)
    for hours in range(9, 4, -1):
        lab.reads(hours, looked=10)
    lab.reads_each_hour(4, 0)
    assert lab.delays == [(8, 4)]


def test_a_cluster_that_is_behind_says_so_and_since_when(lab: Lab) -> None:
    lab.reads_each_hour(100, 7)
    text = lab.shown()
    assert "gpu1 cannot be read at the moment." in text
    assert "gpu1 7 hours behind" in text
    assert "now 05:0" in text  # the delay goes on since it was two hours old
    assert "Nothing is behind." not in text


def test_what_is_read_seldom_is_late_after_two_of_its_turns(lab: Lab) -> None:
    Connection.objects.update(every=6 * 3600)
    for hours in (24, 18, 12, 6):
        lab.reads(hours)
    assert lab.delays == []
    assert "Nothing is behind." in lab.shown()


def test_a_delay_that_began_before_the_span_counts_from_its_begin(lab: Lab) -> None:
    lab.reads(40 * 24)
    lab.reads_each_hour(15 * 24, 0)
    assert lab.delays == [(30 * 24, 15 * 24)]
    assert "50 %" in lab.shown()


def test_before_the_first_pass_nothing_is_said_in_percent(lab: Lab) -> None:
    text = lab.shown()
    assert "gpu1 Not read yet –" in text
    assert "gpu1 cannot be read at the moment." in text
    assert " %" not in text.partition("Clusters")[2]


def test_a_paused_cluster_is_said_to_be_paused_and_its_delay_counts(lab: Lab) -> None:
    lab.reads_each_hour(100, 7)
    Connection.objects.update(enabled=False)
    text = lab.shown()
    assert "The operator has paused reading gpu1." in text
    assert "gpu1 Paused" in text
    assert "Nothing is behind." not in text
    assert lab.delays == [(5, 0)]


def test_of_what_was_long_ago_one_pass_is_looked_at(lab: Lab) -> None:
    for hours in range(90 * 24, 40 * 24, -24):
        lab.reads(hours)
    lab.reads_each_hour(29 * 24, 0)
    assert lab.delays == [(30 * 24, 29 * 24)]


def test_files_are_never_behind(lab: Lab) -> None:
    Connection.objects.all().delete()
    lab.reads(72)
    text = lab.shown()
    assert "gpu1 By the operator" in text
    assert "As files, or pushed –" in text
    assert "behind" not in text
    assert "Delays" not in text


def test_a_clock_that_ran_ahead_is_told(lab: Lab) -> None:
    lab.reads(0, looked=-48)
    text = lab.shown()
    assert "A clock of gpu1 ran ahead" in text
    assert "gpu1 Being checked" in text


def test_each_sees_the_clusters_of_its_own_accounts_and_who_may_read_sees_it(lab: Lab) -> None:
    lab.reads(0)
    other = builders.a_cluster("secret-cluster")
    Account.objects.create(cluster=other, name="theirs")
    lab.reads(0, cluster=other)
    house = lab.house
    for person in (house.ann, house.ben, house.carla):
        assert "gpu1" in lab.shown(person)
        assert "secret-cluster" not in lab.shown(person)
    assert signed_in(house.eve).get(STATUS).status_code == 404
    with acting_scope(house.vision):
        rows = freshness([Mark("gpu1", lab.now), Mark("secret-cluster", lab.now)], moment=lab.now)
    assert [row.cluster for row in rows] == ["gpu1"]


def test_the_menu_and_the_overview_lead_there(lab: Lab) -> None:
    lab.reads(0)
    html = page(lab.house.ann, "/t/vision-lab/")
    assert html.count(f'href="{STATUS}"') == 2
