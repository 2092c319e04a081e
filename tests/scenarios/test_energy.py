"""Energy that Slurm and DCGM measured is a meter as any other: per kWh, by plan, and unknown where nothing measured it.

No recording at hand has a measured value, for those clusters ran without an energy plugin: Slurm's own words for "no
value" are recorded, and amounts are put in their place as sacct's manual describes ConsumedEnergyRaw (joules) and
AllocTRES. Not yet seen from a live source.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connection

from billing.rating import ingest as usage_ingest
from clusters import meters, sources
from clusters.connectors.base import EnergyHour, Reading, Row
from clusters.meters import MeterError
from clusters.models import Cluster, DeclaredMeter, UsageRecord, UsageRevision
from portal.core.tenants.access import Action, entered
from portal.core.tenants.models import Membership, Role, Tenant
from portal.core.tenants.scope import tenant_scope
from tests.builders import LATER, LONG_AGO, a_cluster, a_job, a_person, a_plan, a_tenant, at, ingest, own
from tests.configuring_terms import apply, refused
from tests.scenarios.real import data, run
from tests.scenarios.test_price_hours import add
from tests.schedulers import a_connection
from tests.stories import close, prove
from tests.sums import lines_of, push, sums_of
from tests.web.house import page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

KWH = 3_600_000
NO_VAL64 = 2**64 - 2
PRICES: tuple[Any, ...] = (("gpu-hour", {}, "2.00", LONG_AGO), ("energy", {}, "0.30", LONG_AGO))
HEADER = (
    "JobIDRaw|JobID|User|Account|State|Submit|Start|End|ElapsedRaw|NNodes|AllocTRES|ConsumedEnergyRaw|JobName"
)
ROWS = (
    "7|7|ben|vision|COMPLETED|2026-03-02T09:00:00|2026-03-02T10:00:00|2026-03-02T11:00:00|3600|1|{}cpu=8,node=1|{}|train",
)


def an_energy_meter() -> DeclaredMeter:
    words: dict[str, Any] = {"title": "Energy", "unit": "kWh", "counted": "J", "unit_code": "KWH"}
    return meters.declare_meter(name="energy", per_unit=KWH, **words)


@pytest.fixture
def machines() -> Cluster:
    return a_cluster("gpu1", complete_through="2026-04-02 12:00", energy_meter=an_energy_meter())


@pytest.fixture
def vision(machines: Cluster) -> Tenant:
    plan = a_plan("with-energy", prices=PRICES, charges=("gpu", "energy"))
    return a_tenant("vision-lab", plan=plan, accounts=[(machines, "vision")])


def read(cluster: Cluster, *rows: Row) -> list[str]:
    """The notes of an import."""
    reading = Reading()
    usage_ingest.ingest(cluster=cluster, rows=rows, reading=reading, source="test", moment=LATER)
    return reading.notes


def test_what_slurm_measured_is_billed_and_what_it_did_not_is_unknown(
    machines: Cluster, vision: Tenant
) -> None:
    night = {"started": "2026-02-27 10:00", "ended": "2026-03-01 00:00"}  # its energy is told at its end
    rows = (
        a_job(job_id="1", energy=5 * KWH + 1),
        a_job(job_id="2", energy=KWH // 2, state="FAILED"),
        a_job(job_id="3", energy=2 * KWH, **night),
        a_job(job_id="4", energy=None),
        a_job(job_id="5", energy=0),
        a_job(job_id="6", energy=NO_VAL64),
        a_job(job_id="7", energy=2**32 - 2),
        a_job(job_id="8", energy=1_234_567_890_123_456),  # 16 digits in an hour on a node
        a_job(job_id="9", energy=100_000 * 3600 + 1, nodes=1),
        a_job(job_id="10", energy=100_000 * 3600, nodes=1, account="others"),
        a_job(job_id="11", energy=KWH, ended=None, seen_until="2026-03-02 11:00"),  # it still runs
        a_job(job_id="12", energy=KWH, ended="2026-03-02 10:00"),  # it never ran
    )
    notes = [
        "Of 4 runs that ended there is no energy: it was not measured, so it is unknown, and not counted.",
        "Of 2 runs the energy cannot be true (more than 100 kW a node): it is unknown, and not counted.",
    ]
    assert read(machines, *rows) == notes
    assert read(machines, *rows) == notes  # again: the same, and nothing twice
    assert UsageRecord.objects.filter(meter="energy").count() == 4
    assert not UsageRevision.objects.exists()
    prove()
    close("2026-02")
    close("2026-03")
    assert ("Energy", Fraction(2), "kWh", 60) in lines_of(vision, "2026-02")
    assert ("Energy", Fraction(11, 2) + Fraction(1, KWH), "kWh", 165) in lines_of(vision)
    prove()
    sums = sums_of("energy")
    assert (sums["unit"], sums["unassigned"], sums["pending"]) == ("kWh", "100", "0")

    ann = a_person("ann@vision.example", vision)
    pages = {
        job: words(page(ann, f"/t/vision-lab/jobs/{record}/"))
        for job, record in UsageRecord.objects.filter(meter="").values_list("job_id", "pk")
        if job in {"1", "5", "11"}
    }
    assert "Energy 5 kWh" in pages["1"]
    assert "Energy unknown" in pages["5"]
    assert "Energy not measured yet" in pages["11"]
    assert "Energy 5.5 kWh $1.65" in words(page(ann, "/t/vision-lab/?period=2026-03-01"))


def test_who_does_not_see_a_job_is_told_nothing_that_was_measured_of_it(
    machines: Cluster, vision: Tenant
) -> None:
    read(machines, a_job(job_id="1", user="ben", energy=KWH), a_job(job_id="2", user="zoe", energy=KWH))
    jobs = dict(UsageRecord.objects.filter(meter="").values_list("user", "pk"))

    def measured(tenant: Tenant, user: str) -> Any:
        with tenant_scope(tenant), connection.cursor() as cursor:
            cursor.execute("SELECT kind, quantity FROM billing_own_measured(%s)", [jobs[user]])
            return cursor.fetchall()

    eve = a_tenant("eve-labs", accounts=[(machines, "eve")])
    assert [measured(vision, user) for user in ("ben", "zoe")] == [[("energy", KWH)]] * 2
    assert measured(eve, "ben") == []
    ben = a_person("ben@vision.example", vision, Role.MEMBER)
    Membership.objects.filter(user=ben).update(scheduler_users=["ben"])
    Tenant.objects.filter(pk=vision.pk).update(members_see_own=True)
    own, _may = entered(user=ben, slug="vision-lab", action=Action.READ)
    assert [measured(own, user) for user in ("ben", "zoe")] == [[("energy", KWH)], []]


def test_a_file_of_sacct_tells_it_by_either_column_and_proves_it(
    machines: Cluster, vision: Tenant, tmp_path: Path
) -> None:
    cells = [
        (f"energy={2 * KWH},", "0"),
        ("", str(KWH)),
        (f"energy={NO_VAL64},", "9223372036854775807"),
        (f"energy={KWH},", str(9 * KWH)),
        ("", "1.5K"),
    ]
    file = tmp_path / "march.sacct"
    lines = [ROWS[0].format(*pair).replace("7|7|", f"{n}|{n}|", 1) for n, pair in enumerate(cells, 1)]
    lines.append(
        lines[0].replace("1|1|", "6|6|", 1).replace("|3600|", "|3599|")
    )  # read by all rules, not at once
    file.write_text("\n".join([HEADER, *lines, ""]))
    answer = run("import_usage", "gpu1", file, "--as-of", "2026-04-02T00:00:00Z")
    assert [note[:13] for note in answer["notes"] if "energy" in note] == ["Of 1 run that", "Of 1 run the "]
    joules = UsageRecord.objects.filter(meter="energy").values_list("job_id", "quantity")
    assert dict(joules) == {"1": 2 * KWH, "2": KWH, "4": KWH, "6": 2 * KWH}
    proof = run("prove", "--source", file, "--cluster", "gpu1")
    assert proof["source"]["differing"] == 0

    file.write_text(file.read_text().replace(f"energy={KWH},", f"energy={KWH + 1},"))
    with pytest.raises(SystemExit):
        run("prove", "--source", file, "--cluster", "gpu1")
    run("import_usage", "gpu1", file)
    assert UsageRevision.objects.get().meter == "energy"  # corrected, as any usage is
    prove()


def test_recorded_clusters_without_a_plugin_have_no_energy(machines: Cluster) -> None:
    answer = run("import_usage", "gpu1", data("slurm/supercloud_2021-01_2021-03.sacct.gz"))
    (note,) = [note for note in answer["notes"] if "energy" in note]
    assert note.startswith("Of 4,8")  # 517 of them say NO_VAL64, the others nothing
    assert not UsageRecord.objects.exclude(meter="").exists()
    assert DeclaredMeter.objects.get().first_used_at is None


def test_hours_of_pods_cost_what_their_hour_of_the_week_does(vision: Tenant) -> None:
    """Op prices energy at night apart; DCGM tells of hours, so each has its own price, and the newest word counts."""
    pods = a_cluster(
        "pods",
        kind="prometheus",
        complete_through="2026-04-02 12:00",
        energy_meter=DeclaredMeter.objects.get(),
    )
    tenant = a_tenant("speech-lab", plan=a_plan("nightly", prices=PRICES, charges=("energy",)))
    add(
        tenant.subscriptions.get().plan,
        "0.10",
        {"days": "mon-sun", "from": "22:00", "to": "06:00"},
        meter="energy",
    )
    own(tenant, pods, "speech")
    pod = a_job(
        source_key="2f1e7c3a/main",
        job_id="speech/train-0",
        account="speech",
        started="2026-03-31 20:30",
        ended="2026-03-31 23:10",
    )
    begin = int(at("2026-03-31 20:00").timestamp())
    hours = [EnergyHour(pod, begin + n * 3600, KWH * (n + 1)) for n in range(4)]
    ingest(pods, pod, *hours)
    ingest(pods, pod, *hours[:1], EnergyHour(pod, begin + 3600, 3 * KWH))
    assert sorted(UsageRecord.objects.exclude(meter="").values_list("started", "ended", "quantity")) == [
        (begin + 1800, begin + 3600, KWH),
        (begin + 3600, begin + 7200, 3 * KWH),
        (begin + 7200, begin + 10800, 3 * KWH),
        (begin + 10800, begin + 11400, 4 * KWH),
    ]
    close("2026-03")
    assert sorted(lines_of(tenant)) == [
        ("Energy", Fraction(4), "kWh", 120),
        ("Energy, Mon–Sun 22:00–06:00", Fraction(7), "kWh", 70),
    ]
    prove()
    ann = a_person("ann@speech.example", tenant)
    record = UsageRecord.objects.get(source_key="2f1e7c3a/main").pk
    assert "Energy 11 kWh" in words(page(ann, f"/t/speech-lab/jobs/{record}/"))


def test_hours_of_pods_are_compared_with_what_their_source_tells_now(
    vision: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Op asks Prometheus again what it told: a run and its two hours; then one of them is another."""
    meter = DeclaredMeter.objects.get()
    pods = a_cluster("pods", kind="prometheus", complete_through="2026-03-02 12:00", energy_meter=meter)
    a_connection(pods)
    own(vision, pods, "speech")
    times = {"started": "2026-03-02 10:00", "ended": "2026-03-02 12:00"}
    pod = a_job(source_key="2f1e7c3a/main", job_id="speech/train-0", account="speech", **times)
    begin = int(at("2026-03-02 10:00").timestamp())
    hours = [EnergyHour(pod, begin + n * 3600, KWH) for n in range(2)]
    ingest(pods, pod, *hours)

    source_rows: list[Row] = [pod, *hours]
    source = mock.Mock(usage=lambda **_: iter(source_rows))
    monkeypatch.setattr(sources, "connect", lambda *_, **__: source)
    live = ("prove", "--live", "--cluster", "pods")
    compared = run(*live)["source"]
    assert (compared["facts"], compared["differing"]) == (3, 0)
    source_rows[1] = EnergyHour(pod, begin, 2 * KWH)
    with pytest.raises(SystemExit):
        run(*live)


def test_rows_that_are_pushed_tell_it_too(vision: Tenant) -> None:
    gateway = a_cluster("closed-net", kind="push", energy_meter=DeclaredMeter.objects.get())
    text = ROWS[0].format(f"energy={KWH},", "")
    event = {
        "specversion": "1.0", "id": "7", "source": "https://head.example", "time": "2026-04-01T00:00:00Z",
        "type": "org.clustertab.usage.sacct", "data": {"header": HEADER, "row": f"{text}\n"},
    }  # fmt: skip
    assert [answer.became.value for answer in push(gateway, event, event).answers] == [
        "accepted",
        "duplicate",
    ]
    assert UsageRecord.objects.get(meter="energy").quantity == KWH


def test_op_says_by_which_meter_in_the_file() -> None:
    meter = f'[[meter]]\nname = "energy"\ntitle = "Energy"\nunit = "kWh"\ncounted = "J"\nper_unit = {KWH}\n'
    cluster = '[[cluster]]\nname = "gpu1"\nkind = "import"\nenergy_meter = "energy"\n'
    assert "no meter of that name is declared" in " ".join(refused(cluster))
    apply(meter + cluster)
    assert Cluster.objects.get().energy_meter_id == "energy"
    assert "has 1 of the smallest quantity in its unit" in " ".join(
        refused(
            '[[meter]]\nname = "tokens"\ntitle = "T"\nunit = "token"\n'
            + cluster.replace('"energy"', '"tokens"')
        )
    )
    with pytest.raises(MeterError, match="its unit stays kWh"):
        meters.declare_meter(name="energy", title="Energy", unit="MWh", counted="J", per_unit=10**9)
    apply(cluster.replace('"energy"', '""'))
    assert Cluster.objects.get().energy_meter_id is None
