"""What jobs of a real Slurm cost is written where `squeue` and `scontrol show job` show it."""

from __future__ import annotations

import io
import json
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command

from billing.job_prices import run
from billing.models import QuotaAction, QuotaEvery, QuotaMeasure
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from clusters.models import Cluster, Connection
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_plan, a_tenant
from tests.integration.slurm_lab import Lab
from tests.integration.slurm_plugins import field
from tests.integration.slurm_pulls import connected, pull

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.one_attempt]
GPUS = ("-p", "h100", "--gres=gpu:h100:2", "-t", "60")
BOTH_NODES = ("-p", "h100", "-N2", "--gres=gpu:h100:8", "-t", "60", "--array=0-3")


def writes(cluster: Cluster, *options: str, code: int = 0) -> dict[str, Any]:
    """`write_job_prices CLUSTER …`; its answer for programs."""
    out = io.StringIO()
    with pytest.raises(SystemExit) if code else nullcontext() as end:
        call_command("write_job_prices", cluster.name, *options, "--json", stdout=out)
    assert code == (end.value.code if end else 0)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def a_budget(tenant: Tenant) -> None:
    terms = QuotaTerms(
        measure=QuotaMeasure.MONEY, amount=Decimal(500), every=QuotaEvery.YEAR, action=QuotaAction.NOTIFY
    )
    moment = datetime.now(UTC).replace(microsecond=0)
    quotas.set_quota(tenant=tenant, name="yearly", terms=terms, by=Setter.OPERATOR, moment=moment)


def test_what_a_job_costs_stands_in_squeue_where_rest_can_write_it(every_slurm: Lab) -> None:
    lab, cluster = every_slurm, connected(every_slurm)
    plan = a_plan(charges=["gpu"], prices=[("gpu-hour", {}, "36.00", LONG_AGO)])
    a_budget(a_tenant("globex", plan=plan, accounts=[(cluster, "globex")]))
    runs = lab.submits("cyd", "globex", "sleep 300", *GPUS)
    lab.is_running(runs)  # so that not both nodes are free
    waits = lab.submits("cyd", "globex", "sleep 300", *BOTH_NODES)
    try:
        time.sleep(2)
        lab.knows(runs, "RUNNING")
        lab.knows(waits, "PENDING")
        pull(cluster)
        if int(lab.version.split(".")[0]) < 23:
            assert "cannot have comments of jobs written" in writes(cluster, "--on", code=1)["error"]
            assert list(run.list_due(moment=datetime.now(UTC))) == []  # not asked again at once
            return
        lab.slurm("scontrol", "update", f"jobid={runs}", "admincomment=site: node 7 [ok]")
        refused = writes(cluster, "--on", code=1)
        assert (refused["written"], "adminlevel=Administrator" in refused["error"]) == (0, True)
        lab.slurm("sacctmgr", "-i", "modify", "user", "portal", "set", "adminlevel=Administrator")
        time.sleep(1)  # until slurmctld has heard of it
        assert writes(cluster)["written"] == 2
        comment = field(lab, runs, "AdminComment")
        assert comment.startswith("site: node 7 [ok] [ClusterTab ")
        assert "so far, $72.00 at its time limit; budget yearly: $4" in comment
        shown = lab.slurm("squeue", "-h", "-j", waits, "-O", "admin_comment:200")
        assert "$576.00 a task at its time limit; budget yearly: $4" in shown
        assert "TimeLimit=01:00:00" in lab.slurm("scontrol", "show", "job", runs)  # nothing else was changed
        assert writes(cluster)["written"] == 0  # within half an hour
        later = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=31)
        tally = run.write_job_prices(
            cluster=cluster,
            moment=later,
            opens=lambda cluster: run.open_comments(cluster, clock=lambda: int(time.time())),
        )
        assert (tally.written, tally.error) == (2, "")
        again = field(lab, runs, "AdminComment")
        assert (again.count("[ClusterTab "), f"{later:%H:%M} UTC" in again) == (1, True)
        assert again.startswith("site: node 7 [ok] ")
        assert Connection.objects.get().job_prices_error == ""
    finally:
        lab.slurm("sacctmgr", "-i", "modify", "user", "portal", "set", "adminlevel=Operator")
        lab.slurm("scancel", runs, waits)
        lab.knows(runs, "CANCELLED")
