"""Op gives operator roles on a page, and Ben finds his own jobs by the names that Ann gave him."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command

from portal.core.audit.models import AuditEntry
from portal.core.tenants import team
from portal.core.tenants.models import OperatorRole, User
from portal.core.tenants.tasks import send_account_mails
from tests import sharing
from tests.api.door import door
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_team import does, member

pytestmark = pytest.mark.django_db


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, "https://tab.example"


def test_an_admin_gives_and_takes_operator_roles_and_the_history_has_it(house: House) -> None:
    path = "/operator/people/"
    assert "op@cluster.example" in page(house.op, path)
    text = does(house.op, "give", path, email="FIN@cluster.example", role="finance")
    assert "fin@cluster.example has the operator role finance now." in text
    fin = User.objects.get(email="fin@cluster.example")
    assert signed_in(fin).get("/operator/clusters/").status_code == 200
    assert "Your role does not allow this." in does(fin, "take", path, email=house.op.email)
    assert "op@cluster.example is the last admin" in does(house.op, "take", path, email=house.op.email)
    assert "is the last admin" in does(house.op, "give", path, email=house.op.email, role="support")
    assert "is no operator any more" in does(house.op, "take", path, email=fin.email)
    assert signed_in(fin).get("/operator/clusters/").status_code == 404
    assert "Nobody here has the address no@x.example." in does(house.op, "take", path, email="no@x.example")
    changes = AuditEntry.objects.of_table(User).filter(key=str(fin.pk)).values_list("after", "who")
    assert [((after or {})["operator_role"], who) for after, who in changes] == [
        ("", house.op.email),
        ("finance", house.op.email),
        ("", house.op.email),
    ]
    call_command("set_operator_role", "fin@cluster.example", "cluster")
    fin.refresh_from_db()
    assert fin.operator_role == OperatorRole.CLUSTER
    send_account_mails()
    assert mail.outbox[0].subject == "You are an operator of ClusterTab"


def test_ben_finds_his_own_jobs_by_his_names_on_the_cluster(house: House) -> None:
    jobs = "/t/vision-lab/jobs/"
    assert 'name="mine"' not in page(house.ben, jobs)
    ben = member("ben@vision.example")
    assert "are saved" in does(house.ann, "users", member=ben.pk, users=" ada , ada,,")
    ben.refresh_from_db()
    assert ben.scheduler_users == ["ada"]
    everything, mine = page(house.ben, jobs), page(house.ben, jobs + "?mine=1")
    assert 'name="mine"' in everything
    assert "train" in everything
    assert "train" not in mine
    assert ">18<" in mine
    assert "train" in page(house.ann, jobs), "nobody else is narrowed"
    assert "train" not in page(house.ann, jobs + "?mine=1"), "she has no names"
    too_many = ",".join(f"u{n}" for n in range(team.MOST_USERS + 1))
    assert "At most 20 scheduler user names" in does(house.ann, "users", member=ben.pk, users=too_many)
    row = door(house.op, None).send(
        "PUT",
        "/tenants/vision-lab/members/ben@vision.example",
        {"role": "member", "scheduler_users": ["ben"]},
    )
    assert row.body == {"email": "ben@vision.example", "role": "member", "scheduler_users": ["ben"]}
