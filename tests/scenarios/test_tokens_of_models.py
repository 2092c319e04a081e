"""Tokens that vLLM counted, from Prometheus to the invoice: once, corrected where samples came late."""

from __future__ import annotations

from fractions import Fraction

import pytest

from billing.rating import pulls
from billing.rating.pulls import Pulled, PullOutcome
from clusters import connection_test
from clusters.connectors.findings import Level
from clusters.models import (
    Cluster,
    ClusterKind,
    Connection,
    DeclaredMeter,
    IncompleteHour,
    Quarantined,
    UsageRecord,
)
from portal.core.tenants.models import Tenant
from tests import sums
from tests.builders import LONG_AGO, a_cluster, a_plan, a_seller, a_tenant, at
from tests.contracts.test_prometheus_tokens import CACHED, OPTIONS, PROMPT, TEN, WRITTEN, Scrapes
from tests.fakes.prometheus import StandIn
from tests.scenarios.real import run
from tests.stories import closed, prove

pytestmark = pytest.mark.django_db


@pytest.fixture
def served() -> Cluster:
    """A Prometheus of models, read for tokens alone."""
    a_seller()
    cluster = a_cluster("models", kind=ClusterKind.PROMETHEUS)
    Connection.objects.create(
        cluster=cluster,
        base_url="http://127.0.0.1:1",
        options=OPTIONS,
        first_usage_from=at("2026-03-02 10:00"),
    )
    return cluster


def _pulled(cluster: Cluster, prometheus: StandIn, moment: str) -> Pulled:
    prometheus.now = int(at(moment).timestamp())
    Connection.objects.filter(cluster=cluster).update(base_url=prometheus.url)
    return pulls.pull(cluster, moment=at(moment))


def _vision_lab(cluster: Cluster) -> Tenant:
    """Per million: 0.60 read, 0.06 of what was cached, 2.40 written."""
    rates = (("input", "0.60"), ("cached", "0.06"), ("output", "2.40"))
    prices = [("llm-tokens", {"dimension": [f"direction={name}"]}, rate, LONG_AGO) for name, rate in rates]
    plan = a_plan("ai", prices=prices, charges=("llm-tokens",))
    return a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")])


def test_the_tokens_of_an_hour_are_billed_once_and_corrected_when_samples_come_late(served: Cluster) -> None:
    sums.tokens()
    lab = _vision_lab(served)
    scrapes = Scrapes()
    counted = {PROMPT: {-120: 0, 5: 12_000_000, 65: 14_000_000}, CACHED: {-120: 0, 5: 2_000_000}}
    scrapes.server({**counted, WRITTEN: {-120: 0, 5: 1_000_000, 66: 1_500_000}}, minutes=range(-120, 170))
    with scrapes.served(0) as prometheus:
        done = _pulled(served, prometheus, "2026-03-02 11:40")
        assert (done.outcome, done.stored.new, done.complete_through) == (
            PullOutcome.DONE,
            3,
            at("2026-03-02 11:00"),
        )
        assert _pulled(served, prometheus, "2026-03-02 11:45").stored.new == 0
        done = _pulled(served, prometheus, "2026-03-02 12:40")
        assert (done.stored.new, done.stored.revised) == (3, 0)  # one of them is 0: cached tokens were before

        late = Scrapes()  # a replica whose samples came when the hour had been read
        late.server({PROMPT: {-120: 0, 20: 1_000_000}}, pod="large-1", minutes=range(-120, 170))
        scrapes.series.samples.update(late.series.samples)
        done = pulls.pull(
            served, since=at("2026-03-02 10:00"), until=at("2026-03-02 12:00"), moment=at("2026-03-02 12:40")
        )
        assert (done.stored.new, done.stored.revised) == (0, 1)
        compared = run("prove", "--live", "--hours", "2")["source"]
        assert (compared["facts"], compared["differing"]) == (6, 0)

    Cluster.objects.update(complete_through=at("2026-04-02 12:00"))
    assert closed("2026-03", lab, accept="The rest of the month is not read.").outcome == "issued"
    assert sums.lines_of(lab) == [
        ("LLM tokens, input", Fraction(13), "million tokens", 780),
        ("LLM tokens, cached", Fraction(2), "million tokens", 12),
        ("LLM tokens, output", Fraction(3, 2), "million tokens", 360),
    ]
    prove()
    assert DeclaredMeter.objects.get().first_used_at == at("2026-03-02 11:40")  # from then on its unit stays
    assert set(UsageRecord.objects.values_list("account__name", "user")) == {("vision", "")}


def test_without_a_meter_tokens_wait_in_quarantine_and_are_billed_when_it_is_declared(
    served: Cluster,
) -> None:
    scrapes = Scrapes()
    scrapes.server({PROMPT: {-120: 0, 5: 100}}, minutes=range(-120, 170), down=range(20, 50))
    with scrapes.served(0) as prometheus:
        assert _pulled(served, prometheus, "2026-03-02 11:40").stored.quarantined == 1
        assert "llm-tokens" in Quarantined.objects.get(resolved_at=None).reason
        clock = int(at("2026-03-02 11:40").timestamp())
        (failed,) = [
            one
            for one in connection_test.examine(cluster=served, clock=lambda: clock)
            if one.level == Level.FAIL
        ]
        assert failed.sentence == "No meter is called llm-tokens: all tokens would be kept aside."
        sums.tokens()
        assert _pulled(served, prometheus, "2026-03-02 11:50").stored.new == 1
    assert not Quarantined.objects.filter(resolved_at=None).exists()
    (unseen,) = IncompleteHour.objects.all()
    assert (unseen.begins, unseen.read - unseen.covered) == (TEN, 30 * 60)  # not seen, which is not 0
