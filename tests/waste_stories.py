"""What stories about idle GPUs begin with: jobs that a stand-in's Slurm runs, and hours of their telemetry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from billing.emails import delivery
from billing.models import WasteAction, WasteFinding, WasteRule
from billing.quotas.job_ends import EndTally
from billing.rating.pulls import Pulled, PullOutcome
from billing.waste import end_run, review, rules
from billing.waste.rules import WasteTerms
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import SchedulerPort
from clusters.models import Cluster
from portal.core.tenants.models import Role
from tests.builders import a_job, a_person, a_plan, a_tenant, at, busy, ingest
from tests.fakes.scheduler_port import a_port
from tests.fakes.slurm_world import Job
from tests.fakes.slurmrestd import StandIn


def a_rule(name: str = "idle-3-hours", since: str = "2026-03-01", **terms: Any) -> WasteRule:
    """Three idle hours, cancelled after two more, and no watching, where `terms` say nothing else."""
    values: dict[str, Any] = {"hours": 3, "action": WasteAction.CANCEL, "watch": False} | terms
    return rules.set_rule(name=name, terms=WasteTerms(**values), moment=at(since))


class WasteLab:
    """Vision's jobs run at 2.00 an hour and GPU; Ben is a member of it. Running jobs may be ended here."""

    def __init__(self, slurm: StandIn) -> None:
        self.slurm = slurm
        self.cluster = a_port(slurm).cluster
        self.cluster.may_end_jobs = True
        self.cluster.save()
        self.tenant = a_tenant(
            "vision", plan=a_plan(), accounts=[(self.cluster, "vision")], email="bills@vision.example"
        )
        ben = a_person("ben@vision.example", self.tenant, role=Role.MEMBER)
        ben.memberships.update(scheduler_users=["ben"])
        self.now = at("2026-03-05 11:20")
        self.facts: dict[int, dict[str, Any]] = {}
        self.worked: dict[int, dict[str, str]] = {}
        self.outcome, self.pulls = PullOutcome.DONE, 0

    def runs(self, number: int, since: str = "06:00", *, hours: str = "", **fields: Any) -> None:
        """A job of four GPUs since then. `hours`: a letter for each, B for busy, I for idle, - for unknown."""
        started = f"2026-03-05 {since}"
        moment = int(at(started).timestamp())
        name = fields.get("name", "train")
        self.slurm.world.add(
            Job(number, state="RUNNING", reason="None", submitted=moment, started=moment, gpus=4, name=name)
        )
        facts = {"job_id": str(number), "started": started, "gpus": 4, "name": name, "time_limit": 86400}
        self.facts[number] = facts | fields
        self.worked[number] = {}
        self.reads(self.cluster, moment=self.now)
        self.tells(number, hours, since=since)

    def tells(self, number: int, hours: str, *, since: str) -> None:
        """What telemetry says of the hours that begin then, once the next pull reads it."""
        begin = at(f"2026-03-05 {since}")
        for place, letter in enumerate(hours):
            moment = begin + timedelta(hours=place)
            self.worked[number][f"{moment:%Y-%m-%d %H:%M}"] = letter
        self.reads(self.cluster, moment=self.now)

    def reads(self, cluster: Cluster, *, moment: Any) -> Pulled:
        """What a pull stores: each job as the scheduler has it now, and the hours that are over."""
        self.pulls += 1
        if self.outcome is not PullOutcome.DONE:
            return Pulled(self.outcome, error="slurmrestd does not answer.")
        rows: list[Any] = []
        for number, fields in self.facts.items():
            job = self.slurm.world.jobs[number]
            facts: dict[str, Any] = {"ended": None, "seen_until": int(moment.timestamp()), "state": "RUNNING"}
            if job.done:
                facts = {"ended": int(moment.timestamp()), "state": job.state}
            fact = a_job(**{**fields, **facts})
            rows.append(fact)
            for hour, letter in self.worked[number].items():
                if letter in "BI" and at(hour) + timedelta(minutes=71) <= moment:
                    covered = 3600 * fact.gpus
                    rows.append(
                        busy(fact.source_key, hour, str(covered // 2 if letter == "B" else 0), covered)
                    )
        ingest(cluster, *rows)
        return Pulled(self.outcome)

    def opens(self, cluster: Cluster) -> SchedulerPort:
        if self.outcome is PullOutcome.FAILED:
            raise ConnectorError("connect-refused", retry=True, address="slurmrestd")
        return a_port(self.slurm)

    def at(self, time: str) -> EndTally:
        """A pull, a pass, what workers end, and the e-mails, at that time of the 5th of March."""
        self.now = at(f"2026-03-05 {time}")
        self.reads(self.cluster, moment=self.now)
        review.review_waste(moment=self.now)
        done = end_run.end_waste(moment=self.now, opens=self.opens, reads=self.reads)
        delivery.send_notices(moment=self.now)
        return done

    def state_of(self, number: int) -> str:
        return self.slurm.world.jobs[number].state

    @property
    def findings(self) -> list[tuple[str, str, str]]:
        """Job, state, and why it was closed."""
        rows = WasteFinding.objects.order_by("record_id", "pk")
        return list(rows.values_list("job_id", "state", "closed_for"))
