"""The page of concurrency limits: Op sets, changes and ends them after a preview; Ann sees what she holds of hers."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlencode

import pytest

from billing.limits import limits
from billing.models import ConcurrencyLimit, LimitedAccount
from clusters.models import ClusterKind, Connection
from portal.core.audit.models import AuditEntry
from tests import builders, sharing
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db
PATH = "/operator/limits/"
LIMIT = {"tenant": "vision-lab", "name": "once", "gpus": "16", "gpu_model": "h100", "jobs": "40"}


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


def test_op_sets_changes_and_ends_a_limit_after_a_preview(house: House) -> None:
    op = signed_in(house.op)
    assert "No concurrency limits" in words(page(house.op, PATH))
    text = words(page(house.op, f"{PATH}?{urlencode(LIMIT | {'act': 'preview'})}"))
    assert "Set limit once of vision-lab? At most 16 GPUs of h100 and 40 jobs at once: gpu1/vision" in text
    assert not ConcurrencyLimit.objects.exists()
    saved = op.post(PATH, LIMIT | {"act": "save"}, follow=True)
    assert "Limit once is saved, and written to the schedulers in a moment." in words(saved.content.decode())
    assert AuditEntry.objects.filter(table="billing_concurrencylimit").latest("pk").who == house.op.email
    text = words(page(house.op, PATH))
    assert (
        "vision-lab/once 16 GPUs of h100 and 40 jobs, all accounts gpu1/vision 0 of 16 GPUs, 0 of 40 jobs To be set"
        in text
    )
    assert 'value="16"' in page(house.op, PATH + "?tenant=vision-lab&edit=once")
    text = words(page(house.op, f"{PATH}?{urlencode(LIMIT | {'gpus': '8', 'act': 'preview'})}"))
    assert "Change limit once of vision-lab?" in text
    assert "So far: 16 GPUs of h100 and 40 jobs." in text
    assert "End limit once of vision-lab?" in words(page(house.op, PATH + "?tenant=vision-lab&end=once"))
    op.post(PATH, {"tenant": "vision-lab", "name": "once", "act": "end"})
    assert not limits.list_limits().exists()


def test_what_cannot_be_meant_says_what_to_do_and_others_have_no_such_page(house: House) -> None:
    def asked(**change: str) -> str:
        return words(page(house.op, f"{PATH}?{urlencode(LIMIT | change | {'act': 'preview'})}"))

    assert "There is no tenant of that slug." in asked(tenant="nobody")
    assert "gpus has to be a whole number" in asked(gpus="many")
    assert "Say how many GPUs or how many jobs" in asked(gpus="", jobs="", gpu_model="")
    assert "has no project" in asked(project="none")
    assert "owns no account in this scope now" in asked(account="other")
    assert signed_in(house.op).post(PATH, LIMIT | {"name": "a\0b", "act": "save"}).status_code == 302
    assert signed_in(house.ann).get(PATH).status_code == 404


def test_a_preview_says_where_no_limit_can_be_written(house: House) -> None:
    def preview(**change: str) -> str:
        return words(page(house.op, f"{PATH}?{urlencode(LIMIT | change | {'act': 'preview'})}"))

    assert "gpu1 has no connection that limits can be written over." in preview()
    house.cluster.kind = ClusterKind.SLURM
    house.cluster.save()
    assert "gpu1 has no connection that limits can be written over." in preview()
    row = Connection.objects.create(
        cluster=house.cluster, base_url="http://127.0.0.1:6820", api_version="v0.0.38"
    )
    text = preview()
    assert "The Slurm of gpu1 takes no limits over REST: that needs 23.11 or newer." in text
    assert "Until then the limit is saved and holds nothing there." in text
    Connection.objects.update(api_version="v0.0.44")
    assert "holds nothing there" not in preview()
    Connection.objects.update(api_version="")  # it was never read
    assert "holds nothing there" not in preview()
    row.delete()
    house.cluster.kind = ClusterKind.PROMETHEUS
    house.cluster.save()
    assert "gpu1 has no connection to its API server, over which limits are written." in preview()


def test_ann_sees_what_is_held_of_her_limits_and_eve_does_not(house: House) -> None:
    moment = builders.at("2026-03-10")
    terms = limits.LimitTerms(gpus=16)
    row = limits.set_limit(tenant=house.vision, name="once", terms=terms, moment=moment)
    account = house.vision.ownerships.select_related("account").earliest("pk").account
    LimitedAccount.objects.create(
        tenant=house.vision, account=account, gpus={"": 16}, state="set", began_at=moment, next_at=moment,
        note="GrpTRES=gres/gpu is 32 and not our 16 any more.",
    )  # fmt: skip
    started = builders.a_job(
        started="2026-04-19 10:00", ended=None, seen_until="2026-04-19 12:00", gpus=6, state="RUNNING"
    )
    builders.ingest(house.cluster, started)
    text = words(page(house.ann, "/t/vision-lab/budgets/"))
    assert (
        f"Held at once Limit Account Held now State once 16 GPUs, all accounts gpu1/{account.name} 6 of 16 GPUs Set"
        in text
    )
    assert "any more" not in text  # only operators read what the scheduler says
    assert "Held at once" not in words(page(house.eve, "/t/speech-lab/budgets/"))
    assert row.ended_at is None
