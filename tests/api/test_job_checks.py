"""A plugin of a cluster asks for whoever submits, with a key that can do nothing else. Cases 38 and 63."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.db import IntegrityError, transaction

from clusters.models import Cluster
from portal.api.keys import KeyRefusedError
from portal.api.models import ApiKey
from portal.core.tenants.models import OperatorRole
from tests import builders
from tests.api.addresses import ADDRESSES
from tests.api.door import Door, a_key, door
from tests.web.house import House

pytestmark = pytest.mark.django_db
JOB: dict[str, Any] = {"account": "vision", "hours": "6", "gpus": 2, "gpu_model": "a100"}
DAILY: dict[str, Any] = {
    "measure": "gpu-hours",
    "amount": "10",
    "every": "rolling",
    "hours": 24,
    "action": "no-gpu-jobs",
}


@pytest.fixture
def plugin(house: House) -> Door:
    return door(house.op, None, "jobs:check", cluster=house.cluster)


def test_quota_063_the_plugin_is_told_the_budget_and_the_longest_limit(ann: Door, plugin: Door) -> None:
    ann.send("PUT", "/quotas/daily", DAILY)
    said = plugin.writes("/job-checks", JOB, status=200)
    assert (said["may_run"], said["longest_seconds"], said["seconds"]) == (False, 5 * 3600, 6 * 3600)
    assert said["message"] == (
        "Budget daily (everything, any 24 hours): 0 GPU-hours of 10 GPU-hours used, 10 GPU-hours left; this job needs "
        "up to 12 GPU-hours. A time limit of 5:00:00 fits. It frees what was used 24 hours ago. Ask an owner of "
        "Vision Lab to raise it."
    )
    assert [need["type"] for need in said["quotas"]] == ["urn:clustertab:problem:quota-used-up-tenant"]
    assert plugin.writes("/job-checks", JOB | {"hours": "5"}, status=200) == {
        "may_run": True, "message": "", "seconds": 5 * 3600, "longest_seconds": None, "quotas": [],
        "wallets": [],
    }  # fmt: skip


def test_api_038_an_account_that_nobody_owns_is_answered_as_one_that_there_is_not(
    plugin: Door, house: House
) -> None:
    builders.own(house.vision, Cluster.objects.create(name="other", timezone="UTC"), "elsewhere")
    nobodys = plugin.writes("/job-checks", JOB | {"account": "no-such"}, status=200)
    assert plugin.writes("/job-checks", JOB | {"account": "elsewhere"}, status=200) == nobodys
    assert nobodys["may_run"] is True
    assert plugin.post("/job-checks", JOB | {"cluster": "other"}).problem == (400, "invalid-request")
    assert plugin.post("/job-checks", JOB | {"hours": "0", "account": "no-such"}).problem[0] == 400


def test_api_019_a_key_of_a_cluster_can_do_nothing_but_ask(
    plugin: Door, house: House, op: Door, ann: Door
) -> None:
    for address in ADDRESSES:
        cache.clear()  # there are more of them than a key may write to in a minute
        answer = plugin.send(
            address.method, "/" + re.sub("<[^>]+>", "any", address.route) + address.query, address.body
        )
        expected = {"me": 200, "job-checks": 400}.get(address.route, 403)
        assert answer.status == expected, address
    assert plugin.reads("/me")["cluster"] == house.cluster.name
    assert [one.post("/job-checks", JOB).status for one in (op, ann)] == [403, 403]


def test_api_019_such_a_key_has_one_cluster_no_tenant_and_no_other_scope(house: House) -> None:
    for scopes, tenant, cluster in (
        (("jobs:check",), None, None),
        (("jobs:check", "ops:read"), None, house.cluster),
        (("ops:read",), None, house.cluster),
        (("usage:read",), house.vision, house.cluster),
        (("jobs:check",), house.vision, None),
    ):
        with pytest.raises(KeyRefusedError):
            a_key(house.op if tenant is None else house.ann, tenant, *scopes, cluster=cluster)
    key = a_key(house.op, None, "jobs:check", cluster=house.cluster).key
    with pytest.raises(IntegrityError, match="api_key_of_a_cluster_only_asks"), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk).update(scopes=["jobs:check", "ops:read"])
    with pytest.raises(IntegrityError, match="api_key_of_a_cluster_only_asks"), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk).update(cluster=None)


def test_api_019_it_ends_with_its_makers_right_to_clusters(house: House, plugin: Door) -> None:
    house.op.operator_role = OperatorRole.SUPPORT
    house.op.save()
    assert plugin.get("/me").problem == (401, "unauthenticated")


def test_api_011_who_knows_the_key_takes_no_idempotency_key_of_operators(plugin: Door, op: Door) -> None:
    assert plugin.post("/job-checks", JOB, key="close-march").status == 200
    assert op.post("/closes", {"kind": "preview", "month": "2026-03"}, key="close-march").status == 202
    assert plugin.post("/job-checks", JOB | {"hours": "1"}, key="close-march").problem == (422, "key-reused")


def test_a_command_makes_one(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    named = ["--name", "login nodes", "--scope", "jobs:check", "--cluster", house.cluster.name]
    call_command("create_api_key", house.op.email, *named)
    secret = capsys.readouterr().out.split()[0]
    assert Door(secret).writes("/job-checks", JOB, status=200)["may_run"] is True
