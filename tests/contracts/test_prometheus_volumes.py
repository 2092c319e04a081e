"""Persistent volumes of claims that are bound: pushed into a real Prometheus, GiB-hours computed by hand.

Names and labels are those of kube-state-metrics, docs/metrics/storage/persistentvolumeclaim-metrics.md. Not yet seen
from a live source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from clusters.connectors.base import BadRow, ConnectorError, UsageFact
from clusters.connectors.findings import Level
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import AccountFrom, Attribution, PrometheusLogin, PrometheusOptions, Scope
from clusters.connectors.prometheus import Utilisation as Busy
from clusters.connectors.prometheus.check_metrics import CheckSession
from clusters.connectors.prometheus.check_volumes import volumes
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.prometheus.queries import Queries
from clusters.connectors.sums import MeterUnit
from tests.contracts.prometheus_reading import HOUR, connector
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

GIB = 1 << 30
METER = "volume-gib-hours"
PLAIN = {METER: MeterUnit(METER, 6, 10**6, ())}
BY_CLASS = {METER: MeterUnit(METER, 6, 10**6, ("storage_class",))}
REQUESTED = "kube_persistentvolumeclaim_resource_requests_storage_bytes"
OPTIONS: dict[str, Any] = {
    "matcher": 'cluster="volumes"',
    "utilisation": Busy(scope=Scope.OFF),
    "volumes": METER,
}
OWNER = Attribution(source=AccountFrom.NAMESPACE_LABEL, label="label_owner")
story = Stories()


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def claim(
    world: World,
    name: str,
    *sizes: tuple[int, int | None, int],
    namespace: str,
    phase: str = "Bound",
    of: str | None = "fast",
    owner: str = "",
    **labels: str,
) -> None:
    """What kube-state-metrics tells of a claim, with its sizes in bytes from second to second; None: no info."""
    identity = {"namespace": namespace, "persistentvolumeclaim": name, **labels}
    begin, end = sizes[0][0], sizes[-1][1]
    world.series(REQUESTED, identity, [(since, until, float(size)) for since, until, size in sizes])
    if of is not None:
        info = {**identity, "storageclass": of, "volumename": f"pvc-{name}", "volumemode": "Filesystem"}
        world.series("kube_persistentvolumeclaim_info", info, [(begin, end, 1)])
    for one in ("Bound", "Lost", "Pending"):
        phased = {**identity, "phase": one}
        world.series("kube_persistentvolumeclaim_status_phase", phased, [(begin, end, float(one == phase))])
    if owner:
        owned = {**identity, "label_owner": owner}
        world.series("kube_persistentvolumeclaim_labels", owned, [(begin, end, 1)])


@story
def _claims(worlds: Worlds) -> None:
    world = worlds.new("volumes")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    claim(world, "home", (0, None, 100 * GIB), namespace="team")
    claim(world, "grows", (0, 1800, 10 * GIB), (1800, None, 30 * GIB), namespace="team", of="slow")
    claim(world, "waits", (0, None, 500 * GIB), namespace="team", phase="Pending")
    claim(world, "decimal", (0, None, 10**9), namespace="other")  # 1 GB
    claim(world, "bare", (0, None, 5 * GIB), namespace="team", of=None)
    claim(world, "gone", (0, 1800, 60 * GIB), namespace="short")
    for name, label in (("team", "vision"), ("other", "speech")):
        world.series("kube_namespace_labels", {"namespace": name, "label_owner": label}, [(0, None, 1)])


@story
def _claims_that_turn(worlds: Worlds) -> None:
    world = worlds.new("turning")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    a, b = {"prometheus_replica": "a"}, {"prometheus_replica": "b"}
    claim(world, "twice", (0, None, 10 * GIB), namespace="both", **a)
    claim(world, "twice", (0, None, 10 * GIB), namespace="both", **b)
    claim(world, "rollout", (0, 1200, 30 * GIB), namespace="rolled", **a)
    claim(world, "rollout", (1200, None, 30 * GIB), namespace="rolled", **b)
    claim(world, "anew", (0, 1200, 30 * GIB), namespace="made", of="slow")
    claim(world, "anew", (1200, None, 60 * GIB), namespace="made", of="fast")
    claim(world, "anew", (0, None, 7 * GIB), namespace="namesake")
    claim(world, "waits", (0, 1200, 60 * GIB), namespace="late", phase="Pending")
    claim(world, "waits", (1200, None, 60 * GIB), namespace="late")


@story
def _claims_with_labels(worlds: Worlds) -> None:
    worlds.new("no volumes").node("n-1", product="NVIDIA-H100-80GB-HBM3")
    world = worlds.new("labels")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    claim(world, "own", (0, None, 10 * GIB), namespace="team", owner="vision")
    claim(world, "other", (0, None, 20 * GIB), namespace="team", owner="speech")
    claim(world, "none", (0, None, 40 * GIB), namespace="team")
    claim(world, "turns", (0, 1200, 3 * GIB), namespace="team", owner="speech")
    claim(world, "turns", (1200, None, 3 * GIB), namespace="team", owner="vision")
    world.series("kube_namespace_labels", {"namespace": "team", "label_owner": "ops"}, [(0, None, 1)])


def facts_of(
    worlds: Worlds, meters: Any = PLAIN, stored: Sequence[UsageFact] = (), **options: Any
) -> list[UsageFact]:
    """The sums of the first hour."""
    source = connector(worlds.url, meters=meters, stored=stored, **OPTIONS | options)
    rows = list(source.usage(since=worlds.begin, until=worlds.begin + World.LENGTH - 600, open_keys=()))
    assert not [row for row in rows if isinstance(row, BadRow)]
    facts = [row for row in rows if isinstance(row, UsageFact) and row.meter == METER]
    assert len({row.source_key for row in facts}) == len(facts)
    return [row for row in facts if (row.started, row.ended) == (worlds.begin, worlds.begin + HOUR)]


def gib_hours(worlds: Worlds, meters: Any = PLAIN, **options: Any) -> dict[str, Decimal]:
    """Of the first hour, by account and dimensions."""
    held: Counter[str] = Counter()
    for row in facts_of(worlds, meters, **options):
        held[f"{row.account} {row.gpu_model}".strip()] += row.quantity or 0
    return {name: Decimal(parts).scaleb(-6) for name, parts in held.items()}


def test_bound_claims_are_gib_hours_of_their_namespace_whether_or_not_a_pod_uses_them(worlds: Worlds) -> None:
    assert gib_hours(worlds) == {
        # 100 × 1 h, 10 × ½ h, 30 × ½ h, and 5 × 1 h of no known class; what waits for a volume holds none
        "team": Decimal(125),
        "other": Decimal(10**9 * HOUR * 10**6 // (GIB * HOUR)).scaleb(-6),  # rounded down, once an hour
        "short": Decimal(30),  # it was deleted after half an hour
    }


def test_what_turns_within_the_hour_is_looked_at_minute_by_minute(worlds: Worlds) -> None:
    by_class = gib_hours(worlds, BY_CLASS, matcher='cluster="turning"')
    assert by_class == {
        "both storage_class=fast": 10,  # two replicas tell of it
        "rolled storage_class=fast": 30,  # kube-state-metrics was rolled out after 20 minutes
        "made storage_class=slow": 10,  # 20 minutes of 30 GiB
        "made storage_class=fast": 40,  # 40 minutes of 60 GiB
        "namesake storage_class=fast": 7,
        "late storage_class=fast": 40,
    }


def test_a_label_of_the_claim_names_its_account_before_its_namespace(worlds: Worlds) -> None:
    """`kube_persistentvolumeclaim_labels` has `namespace`, `persistentvolumeclaim` and `label_PVC_LABEL`."""
    labels: dict[str, Any] = {"matcher": 'cluster="labels"'}
    assert gib_hours(worlds, **labels) == {"team": 73}
    own = {**labels, "volume_label": "label_owner"}
    assert gib_hours(worlds, **own) == {
        "vision": 13,
        "speech": 20,
        "team": 40,
    }  # as labelled when the hour ended
    assert gib_hours(worlds, **own, account=OWNER) == {"vision": 13, "speech": 20, "ops": 40}


def test_what_an_hour_that_is_read_again_no_longer_has_is_revised_to_nothing(worlds: Worlds) -> None:
    labels: dict[str, Any] = {"matcher": 'cluster="labels"'}
    own = facts_of(worlds, **labels, volume_label="label_owner")
    again = facts_of(worlds, stored=own, **labels)
    assert sorted((row.account, row.quantity) for row in again) == [
        ("speech", 0), ("team", 73_000_000), ("vision", 0),
    ]  # fmt: skip
    absent = facts_of(worlds, stored=own, matcher='cluster="no volumes"')
    assert absent == []  # no volume is seen at all: that proves nothing


def test_a_meter_with_classes_tells_them_apart(worlds: Worlds) -> None:
    by_class = gib_hours(worlds, BY_CLASS)
    assert by_class["team storage_class=fast"] == 100
    assert by_class["team storage_class=slow"] == 20
    assert by_class["team storage_class=none"] == 5


def test_the_account_can_be_a_label_of_the_namespace(worlds: Worlds) -> None:
    by_owner = gib_hours(worlds, account=OWNER)
    assert by_owner["vision"] == 125
    assert by_owner[""] == 30  # of a namespace without the label: nobody's


def test_an_hour_that_is_read_again_with_other_accounts_or_classes_is_the_same_sum(worlds: Worlds) -> None:
    keys = {row.source_key: row.quantity for row in facts_of(worlds)}
    assert {row.source_key: row.quantity for row in facts_of(worlds, BY_CLASS)} == keys
    assert {row.source_key: row.quantity for row in facts_of(worlds, account=OWNER)} == keys


def test_a_meter_that_is_not_declared_keeps_the_sums_aside(worlds: Worlds) -> None:
    source = connector(worlds.url, **OPTIONS)
    rows = list(source.usage(since=worlds.begin, until=worlds.begin + HOUR + 600, open_keys=()))
    assert {row.code for row in rows if isinstance(row, BadRow)} == {"meter-not-declared"}


def test_test_connection_says_what_it_found(worlds: Worlds) -> None:
    now = worlds.begin + World.LENGTH - 60
    with PrometheusClient(Endpoint(base_url=worlds.url), PrometheusLogin(), clock=lambda: now) as client:
        session = CheckSession(client, Queries(PrometheusOptions(**OPTIONS)), now, PLAIN)
        session.now = now
        assert volumes(session, "Volumes")
    assert [(one.level, one.sentence) for one in session.findings] == [
        (Level.OK, "5 claims; those that are bound request 135 GiB now."),
        (Level.OK, f"They are sums of the meter {METER}."),
    ]


def test_test_connection_counts_the_claims_that_have_the_label(worlds: Worlds) -> None:
    now = worlds.begin + World.LENGTH - 60
    for label, level, has in (("label_owner", Level.OK, 3), ("label_other", Level.WARN, 0)):
        options = OPTIONS | {"matcher": 'cluster="labels"', "volume_label": label}
        with PrometheusClient(Endpoint(base_url=worlds.url), PrometheusLogin(), clock=lambda: now) as client:
            session = CheckSession(client, Queries(PrometheusOptions(**options)), now, PLAIN)
            session.now = now
            assert volumes(session, "Volumes")
        assert (session.findings[1].level, session.findings[1].sentence) == (
            level,
            f"Of 4 claims, {has} have the label {label}; the others go by their namespace.",
        )


def test_a_label_without_volumes_is_refused() -> None:
    with pytest.raises(ConnectorError, match="The option volume_label needs volumes"):
        options_from({"volume_label": "label_owner"})


def test_volumes_without_pods_are_refused() -> None:
    with pytest.raises(ConnectorError, match="The option volumes needs pods"):
        PrometheusOptions(volumes=METER, pods=False)
