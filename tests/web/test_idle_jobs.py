"""The pages of idle jobs: Op sets a rule after a preview, in the browser, a file or a command; Ann sees and decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import StringIO
from urllib.parse import urlencode

import pytest
from django.core.management import call_command
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext

from billing.models import WasteFinding, WasteRule
from billing.waste import rules
from portal.config_file.apply import apply
from portal.config_file.schema import parse
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import User
from portal.web import waste_form
from tests.api.door import Door, a_key
from tests.builders import a_person, a_tenant, an_operator, at
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurmrestd import StandIn
from tests.waste_stories import WasteLab, a_rule
from tests.web.clock import stand_at
from tests.web.house import page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)
OP, MINE = "/operator/idle-jobs/", "/t/vision/idle-jobs/"
RULE = {
    "name": "idle-3-hours",
    "hours": "3",
    "kind": "idle",
    "action": "cancel",
    "watch": "",
    "choice": "opt-out",
}


@pytest.fixture
def lab() -> Iterator[WasteLab]:
    with StandIn(45, world=a_world()) as slurm:
        yield WasteLab(slurm)


def shown(monkeypatch: pytest.MonkeyPatch, lab: WasteLab) -> None:
    """Pages stand at the story's moment."""
    stand_at(monkeypatch, f"{lab.now:%Y-%m-%d %H:%M}", of="portal.web.idle_jobs")


def strangers_see_nothing(eve: User, ann: User) -> None:
    assert signed_in(eve).get(MINE).status_code == 404
    assert signed_in(eve).post("/t/vision/idle-jobs/choose/", {"name": "idle-3-hours"}).status_code == 404
    assert signed_in(ann).get(OP).status_code == 404
    assert "Cancelled: 1 job" not in words(page(eve, "/t/speech/idle-jobs/"))
    assert Door(a_key(eve, eve.memberships.get().tenant).secret).get("/idle-jobs").body["data"] == []


def test_op_previews_watches_and_then_acts_and_ann_sees_what_was_done(
    lab: WasteLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, ann = an_operator(), a_person("ann@vision.example", lab.tenant)
    ben = a_person("ben@vision.example")
    eve = a_person("eve@speech.example", a_tenant("speech"))
    lab.runs(71, hours="BBIIIIIIIIII")
    lab.runs(72, hours="BBIIIIIIIIII", qos="debug")
    shown(monkeypatch, lab)
    assert "No rules" in words(page(op, OP))
    preview = words(page(op, f"{OP}?{urlencode(RULE | {'except_qoses': 'debug', 'act': 'preview'})}"))
    assert "Set rule idle-3-hours?" in preview
    assert "No use for 3 h, all clusters. Cancels after 120 minutes." in preview
    assert "1 running job meets it now. 1 more is excluded" in preview
    assert "vision: job 71 of ben in gpu1/vision, 4 × a100, idle since 5 Mar 2026, 08:00" in preview
    assert "$8.00 an hour" in preview
    assert "Nothing is ended." in preview
    assert not WasteRule.objects.exists()
    client = signed_in(op)
    saved = client.post(OP, RULE | {"except_qoses": "debug", "act": "save"}, follow=True)
    assert "Rule idle-3-hours is saved." in words(saved.content.decode())
    assert AuditEntry.objects.filter(table="billing_wasterule").latest("pk").who == op.email
    lab.at("11:20")
    lab.at("15:20")
    shown(monkeypatch, lab)
    text = words(page(op, OP))
    assert "Would have been ended: 1 job" in text
    assert "$10.67" in text  # 1 h 20 min after 14:00, at $8.00
    client.post(OP, RULE | {"except_qoses": "debug", "watch": "no", "act": "save"})
    lab.at("15:25")
    lab.at("17:50")
    assert lab.at("18:13").ended == 1
    lab.now += timedelta(hours=3)
    shown(monkeypatch, lab)
    text = words(page(ann, MINE))
    assert "Cancelled: 1 job" in text
    assert "about $24.00 saved" in text  # three hours since then
    assert "Rule applies Opt out" in text
    client_of_ann = signed_in(ann)
    client_of_ann.get(MINE)
    with CaptureQueriesContext(connection) as queries:
        client_of_ann.get(MINE)
    assert len(queries) <= 20
    assert "Opt out" not in page(ben, MINE)
    strangers_see_nothing(eve, ann)
    answer = signed_in(ann).post(
        "/t/vision/idle-jobs/choose/", {"name": "idle-3-hours", "act": "out"}, follow=True
    )
    assert "no longer applies to your jobs" in words(answer.content.decode())
    assert "Rule does not apply Opt in" in words(page(ann, MINE))
    assert WasteFinding.objects.filter(state="ended").count() == 1
    listed = Door(a_key(ann, lab.tenant).secret).get("/idle-jobs?state=ended").body["data"]
    assert [row["job"] for row in listed] == ["71"]
    assert "End rule idle-3-hours?" in words(page(op, OP + "?end=idle-3-hours"))
    client.post(OP, {"name": "idle-3-hours", "act": "end"})
    assert not rules.list_rules().exists()


def test_a_file_and_commands_set_the_same_rule_and_bad_input_says_what_to_do(lab: WasteLab) -> None:
    op = an_operator()
    text = """
[[waste_rule]]
name = "idle-3-hours"
hours = 3
action = "cancel"
except_names = ["jupyter*"]
watch = false
"""
    moment: datetime = at("2026-03-01")
    lines = [str(change) for change in apply(file=parse(text), moment=moment).changes]
    assert any("waste rule idle-3-hours" in line for line in lines)
    assert apply(file=parse(text), moment=moment).changes == []
    out = StringIO()
    call_command(
        "set_waste_rule", "idle-3-hours", "--hours=3", "--action=cancel", "--except-name=jupyter*", "--act", "--json",
        stdout=out,
    )  # fmt: skip
    assert json.loads(out.getvalue())["except_names"] == ["jupyter*"]
    assert WasteRule.objects.count() == 1
    lab.runs(71, hours="BBIII")
    lab.at("11:20")
    out = StringIO()
    call_command("show_waste", "--days=100000", stdout=out)
    assert "idle-3-hours: idle for 3 h, cancel after 120 minutes, all clusters, opt-out" in out.getvalue()
    assert "job 71 of ben in gpu1/vision (vision): 4 × a100 idle since 2026-03-05 08:00 UTC" in out.getvalue()
    for change, answer in (
        ({"hours": "many"}, "hours has to be a whole number"),
        ({"hours": "0"}, "hours has to be"),
        ({"cluster": "nowhere"}, "There is no cluster"),
        ({"name": "Two Words"}, "Name a rule by lower-case letters"),
    ):
        preview = words(page(op, f"{OP}?{urlencode(RULE | change | {'act': 'preview'})}"))
        assert answer in preview
    assert signed_in(op).post(OP, RULE | {"name": "a\0b", "act": "save"}).status_code == 302


def test_a_rule_that_excludes_much_keeps_all_of_it_through_the_form() -> None:
    excluded = sorted(f"interactive-session-of-team-{number:03d}" for number in range(100))
    row = a_rule(except_names=excluded)
    fields = QueryDict(mutable=True)
    fields.update(waste_form.values_of(row))
    waste_form.entry_of(waste_form.typed_in(fields)).write(moment=at("2026-03-05"))
    assert WasteRule.objects.get().except_names == excluded
