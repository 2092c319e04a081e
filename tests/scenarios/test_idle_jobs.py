"""Jobs that hold GPUs and do not use them: told of, ended after a grace, and only where that is known."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import WasteAction, WasteChoiceKind, WasteFinding, WasteKind, WasteRule
from billing.rating.pulls import PullOutcome
from billing.waste import end_run, review, rules, savings
from billing.waste.idle_jobs import IdleJob, is_excluded
from billing.waste.rules import WasteRuleError
from clusters.models import Act, ActKind
from portal.core.events.models import Event
from portal.core.tenants.scope import acting_scope, tenant_scope
from tests.builders import a_tenant, at
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurmrestd import StandIn
from tests.waste_stories import WasteLab, a_rule

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lab(settings: Any) -> Iterator[WasteLab]:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(45, world=a_world()) as slurm:
        yield WasteLab(slurm)


def subjects() -> list[str]:
    return [str(message.subject) for message in mail.outbox]


def test_an_idle_job_is_announced_warned_of_and_cancelled_and_a_busy_one_is_not(lab: WasteLab) -> None:
    a_rule()
    lab.runs(71, hours="BBIII")  # idle since 8:00
    lab.runs(72, hours="BBBBB")
    lab.runs(73, hours="BBI-I")  # an hour is not known
    lab.runs(74, hours="")  # nothing is known
    lab.runs(75, hours="BBIII")
    assert lab.at("11:20").ended == 0
    row = WasteFinding.objects.get(job_id="71")
    assert (row.state, row.idle_since, row.due_at) == (
        "announced",
        at("2026-03-05 08:00"),
        at("2026-03-05 14:00"),
    )
    assert (row.hour_cost, row.currency) == (Decimal(8), "USD")
    assert lab.findings == [("71", "announced", ""), ("75", "announced", "")]
    assert subjects() == ["2 jobs do not use their GPUs and end at 2026-03-05 14:00 UTC"]
    assert mail.outbox[0].to == ["ben@vision.example", "bills@vision.example"]
    text = " ".join(str(mail.outbox[0].body).split())
    assert "4 × a100 since 2026-03-05 08:00: $8.00 an hour, $26.67 so far" in text
    assert "about $16.00 an hour" in text
    lab.tells(71, "III", since="11:00")
    lab.tells(75, "IIB", since="11:00")  # it works again in the last hour of its grace
    assert lab.at("13:50").warned == 2
    assert lab.at("14:00").ended == 0  # telemetry of the last hour is not there yet
    pulls = lab.pulls
    done = lab.at("14:13")
    assert (done.ended, done.troubles, lab.pulls - pulls) == (1, [], 2)
    assert [lab.state_of(number) for number in (71, 72, 73, 74, 75)] == ["CANCELLED"] + ["RUNNING"] * 4
    assert lab.findings == [("71", "ended", "ended"), ("75", "announced", "busy")]
    act = Act.objects.get()
    assert (act.kind, act.account) == (ActKind.CANCEL, "vision")
    assert act.why == "waste rule idle-3-hours: its GPUs have not been used since 2026-03-05 08:00 UTC"
    assert subjects()[1:] == [
        "2 jobs do not use their GPUs and end at 2026-03-05 14:00 UTC",
        "1 job that did not use its GPUs was ended",
    ]
    kinds = list(Event.objects.filter(type__startswith="waste").order_by("pk").values_list("type", "state"))
    assert kinds == [("waste.found", "announced")] * 2 + [("waste.found", "soon")] * 2 + [
        ("waste.ended", "ended")
    ]
    review.review_waste(moment=at("2026-03-05 14:15"))  # before a pull that knows of the end
    assert len(lab.findings) == 2
    assert lab.at("14:30").ended == 0


def test_a_job_that_works_again_is_spared_at_once_and_found_anew(lab: WasteLab) -> None:
    a_rule(action=WasteAction.REQUEUE)
    lab.runs(71, hours="BBIII")
    lab.at("11:20")
    lab.tells(71, "B", since="11:00")
    lab.at("12:20")
    assert lab.findings == [("71", "announced", "busy")]
    row = WasteFinding.objects.get()
    assert row.ran_until == at("2026-03-05 11:00")
    lab.tells(71, "IIIIIIII", since="12:00")
    lab.at("15:20")
    assert lab.findings == [("71", "announced", "busy"), ("71", "announced", "")]
    lab.at("17:50")
    assert lab.at("18:15").ended == 1
    job = lab.slurm.world.jobs[71]
    assert (job.state, job.reason) == ("PENDING", "job_requeued_in_held_state")
    assert lab.findings[1] == ("71", "requeued", "ended")


@pytest.mark.parametrize("minor", [44])
def test_a_slurm_that_cannot_requeue_over_rest_keeps_the_job_and_says_why(minor: int) -> None:
    with StandIn(minor, world=a_world()) as slurm:
        lab = WasteLab(slurm)
        a_rule(action=WasteAction.REQUEUE)
        lab.runs(71, hours="IIIIIIII")
        lab.at("11:20")
        lab.at("13:50")
        done = lab.at("14:15")
        assert done.ended == 0
        assert "cannot requeue jobs over REST" in done.troubles[0]
        assert (lab.state_of(71), lab.findings) == ("RUNNING", [("71", "announced", "")])


def test_what_watching_would_have_ended_counts_each_job_once_for_each_rule(lab: WasteLab) -> None:
    a_rule(watch=True)
    lab.runs(71, hours="BBIIIIIIBIIIIII")
    for time in ("11:20", "14:20", "15:20", "18:20", "20:50"):  # it works at 14:00, and is found again
        lab.at(time)
    assert lab.findings == [("71", "watched", "busy"), ("71", "watched", "")]
    (one,) = savings.load_savings(moment=lab.now, since=at("2026-03-01"))
    assert (one.jobs, one.again) == (1, 1)


def test_a_tenant_reads_rules_in_force_and_those_that_its_jobs_met_alone(lab: WasteLab) -> None:
    other = a_tenant("speech")
    a_rule("of-all")
    a_rule("met", action=WasteAction.NOTIFY)
    a_rule("secret", hours=300, except_names=["of-somebody-else"])
    lab.runs(71, hours="BBIII")
    lab.at("11:20")
    for name in ("met", "secret"):
        assert rules.end_rule(name=name, moment=lab.now)
    seen = {}
    for tenant in (lab.tenant, other):
        for scope in (tenant_scope, acting_scope):
            with scope(tenant):
                seen[tenant.slug, scope.__name__] = set(WasteRule.objects.values_list("name", flat=True))
    mine, others = {"of-all", "met"}, {"of-all"}
    assert seen == {
        ("vision", "tenant_scope"): mine,
        ("vision", "acting_scope"): mine,
        ("speech", "tenant_scope"): others,
        ("speech", "acting_scope"): others,
    }


def test_what_is_not_known_is_never_ended(lab: WasteLab) -> None:
    a_rule()
    lab.runs(71, hours="BBIII")
    lab.at("11:20")
    lab.at("13:50")  # telemetry fails from 11:00 on
    lab.at("14:15")
    assert (lab.state_of(71), lab.findings) == ("RUNNING", [("71", "announced", "unknown")])
    lab.tells(71, "IIIII", since="12:00")  # an hour stays lost
    lab.at("17:20")
    assert lab.findings[1:] == [("71", "announced", "")]  # found anew, with a whole grace
    lab.tells(71, "IIIII", since="17:00")
    lab.at("19:50")
    lab.outcome = PullOutcome.FAILED
    done = lab.at("20:15")
    assert "could not be read, so no job was ended" in done.troubles[0]
    assert (done.ended, lab.state_of(71)) == (0, "RUNNING")
    lab.outcome = PullOutcome.DONE
    assert lab.at("20:20").ended == 1
    assert lab.state_of(71) == "CANCELLED"


def test_rules_look_at_what_they_say_and_pass_over_what_they_exclude(lab: WasteLab) -> None:
    notify: dict[str, Any] = {"action": WasteAction.NOTIFY}
    a_rule("tail", kind=WasteKind.TAIL, **notify)
    a_rule("unused", kind=WasteKind.UNUSED, **notify)
    excluded: dict[str, Any] = {
        "except_queues": ["desk"],
        "except_qoses": ["debug"],
        "except_names": ["jupyter*"],
    }
    a_rule("idle", hours=2, **notify, **excluded)
    a_rule("elsewhere", hours=1, cluster=lab.cluster.name, **notify, **excluded)
    lab.runs(71, hours="BBIII")
    lab.runs(72, hours="IIIII")
    lab.runs(73, hours="-IIII")
    lab.runs(74, hours="BBIII", queue="desk")
    lab.runs(75, hours="BBIII", qos="debug")
    lab.runs(76, hours="BBIII", name="jupyter-lab")
    lab.runs(77, hours="BBBII", suspended=3600)  # one of its idle hours may be the suspended one
    lab.runs(78, hours="BBIII", gpus=0)
    lab.at("11:20")
    rows = WasteFinding.objects.order_by("rule__name", "job_id").values_list("rule__name", "job_id")
    findings: dict[str, list[str]] = {}
    for name, job in rows:
        findings.setdefault(name, []).append(job)
    assert findings == {
        "elsewhere": ["71", "72", "73", "77"],
        "idle": ["71", "72", "73"],
        "tail": ["71", "74", "75", "76"],
        "unused": ["72"],
    }
    assert all("do not use" in subject or "does not use" in subject for subject in subjects())


def test_watching_writes_down_and_tells_nobody_and_a_changed_rule_begins_anew(lab: WasteLab) -> None:
    a_rule(watch=True)
    lab.runs(71, hours="BBIIIIIIIIII")
    lab.at("11:20")
    lab.at("15:20")
    assert (lab.findings, lab.state_of(71), mail.outbox) == ([("71", "watched", "")], "RUNNING", [])
    a_rule(since="2026-03-05 15:25")
    lab.at("15:30")
    assert lab.findings == [("71", "watched", "changed"), ("71", "announced", "")]
    assert WasteFinding.objects.get(closed_at=None).due_at == at("2026-03-05 18:00")
    lab.cluster.may_end_jobs = False  # the leave is taken back
    lab.cluster.save()
    lab.at("17:50")
    assert [state for _, state, _ in lab.findings] == ["watched", "announced", "notified"]
    assert rules.end_rule(name="idle-3-hours", moment=lab.now)
    assert WasteFinding.objects.filter(closed_at=None).count() == 0
    assert lab.at("18:20").ended == 0


def test_tenants_decide_where_the_rule_lets_them(lab: WasteLab) -> None:
    a_rule()
    a_rule("asked", choice=WasteChoiceKind.OPT_IN)
    a_rule("always", choice=WasteChoiceKind.NONE)
    lab.runs(71, hours="BBIIIIIII")
    lab.at("11:20")
    names = WasteFinding.objects.filter(closed_at=None).order_by("rule__name")
    assert list(names.values_list("rule__name", flat=True)) == ["always", "idle-3-hours"]
    for name, takes_part in (("idle-3-hours", False), ("asked", True)):
        assert rules.choose(tenant=lab.tenant, name=name, takes_part=takes_part, moment=lab.now)
        assert not rules.choose(tenant=lab.tenant, name=name, takes_part=takes_part, moment=lab.now)
    with pytest.raises(WasteRuleError, match="leaves tenants no choice"):
        rules.choose(tenant=lab.tenant, name="always", takes_part=False, moment=lab.now)
    lab.at("11:25")
    assert list(names.values_list("rule__name", flat=True)) == ["always", "asked"]


def test_a_pass_where_nothing_changed_costs_the_same_few_queries_however_much_runs(lab: WasteLab) -> None:
    a_rule()
    counts = []
    for number in (71, 81, 91):
        for other in range(number, number + 3):
            lab.runs(other, hours="BBIII")
        lab.at("11:20")
        with CaptureQueriesContext(connection) as queries:
            review.review_waste(moment=lab.now)
            end_run.end_waste(moment=lab.now, opens=lab.opens, reads=lab.reads)
        counts.append(len([one for one in queries if "SAVEPOINT" not in (one["sql"] or "")]))
    assert counts == [counts[0]] * 3
    assert counts[0] <= 12


@pytest.mark.parametrize(
    ("pattern", "name", "is_met"),
    [
        ("jupyter", "jupyter", True),
        ("jupyter", "jupyter-lab", False),
        ("jupyter*", "jupyter", True),
        ("*lab", "a-lab-b-lab", True),
        ("*lab*", "a-lab-b", True),
        ("a*b*c", "abcbc", True),
        ("a*b*c", "acb", False),
        ("ab*bc", "abc", False),
        ("*", "", True),
        ("**a**", "b\na\nb", True),
        ("a.c", "abc", False),
        ("*" * 100 + "x", "y" * 1000, False),  # as little time as any
        ("*a" * 100 + "*b", "a" * 1000, False),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, name: str, is_met: bool) -> None:
    rule = WasteRule(except_queues=[], except_qoses=[], except_names=[pattern])
    job = cast("IdleJob", SimpleNamespace(queue="", qos="", name=name))
    assert is_excluded(job, rule) is is_met


def test_a_rule_that_cannot_be_is_refused_with_what_to_do() -> None:
    for terms, match in (
        ({"hours": 0}, "1 to 336"),
        ({"busy_at_most": 50}, "Up to 20 percent"),
        ({"grace_minutes": 5}, "from 30 to"),
        ({"cluster": "nowhere"}, "no cluster"),
        ({"except_names": [""]}, "1 to 255"),
        ({"name": "Not a slug"}, "lower-case"),
    ):
        with pytest.raises(WasteRuleError, match=match):
            a_rule(**terms)
