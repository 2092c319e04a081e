"""What the commands share that act on a cluster's jobs and accounts: a preview unless --yes is given."""

from __future__ import annotations

import getpass
import time
from abc import abstractmethod
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from clusters import act_reports, enforcement_plan, job_control
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, Plan, Request, SchedulerPort
from clusters.models import Act
from portal.ops.cli import Answer, OperatorCommand, RefusedError
from portal.ops.lookups import the_cluster


class ControlCommand(OperatorCommand):
    """Plans, tells, and with --yes carries out. Subclasses give `targets` and `request`."""

    refusals: ClassVar = (LimitError, ConnectorError)

    @abstractmethod
    def targets(self, parser: CommandParser) -> None:
        """Add the arguments that say on whom, after the cluster."""

    @abstractmethod
    def request(self, options: dict[str, Any]) -> Request:
        """What is wanted. Raises BadInputError."""

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        self.targets(parser)
        parser.add_argument("--yes", action="store_true", help="do it; without, only say what would be done")
        parser.add_argument(
            "--plan",
            metavar="PLAN",
            default="",
            help="do it only if it is still this plan, as a preview named it",
        )
        parser.add_argument("--why", metavar="REASON", default="", help="kept in the history")

    def answer(self, *, cluster: str, yes: bool, plan: str, why: str, **options: Any) -> Answer:
        request = self.request(options)
        with enforcement_plan.open_port(cluster=the_cluster(cluster), clock=lambda: int(time.time())) as port:
            if yes:
                job_control.tidy(port=port)
            current_plan = enforcement_plan.plan(port=port, request=request)
            if plan and plan != current_plan.fingerprint:
                raise RefusedError(
                    f"What would be done now is plan {current_plan.fingerprint} and not {plan}: look at it again "
                    "without --yes."
                )
            return (
                _carried_out(port, current_plan, why, exactly=bool(plan))
                if yes
                else _previewed(port, current_plan)
            )


def _previewed(port: SchedulerPort, plan: Plan) -> Answer:
    lines = [*(step.words for step in plan.steps), *plan.notes]
    lines += [
        f"How act {act.pk} ended ({act}) is not known; --yes looks."
        for act in job_control.unsettled(port.cluster)
    ]
    if plan.steps:
        lines.append(f"Nothing was done yet: this is plan {plan.fingerprint}; --yes carries it out.")
    return Answer(act_reports.of_plan(port, plan), "\n".join(lines))


def _carried_out(port: SchedulerPort, plan: Plan, why: str, *, exactly: bool) -> Answer:
    who = f"{getpass.getuser()} at the shell"
    done = job_control.carry_out(port=port, plan=plan, who=who, why=why, exactly=exactly)
    acts = [*done.acts, *([None] * done.left)]
    lines = [_line(step.words, act) for step, act in zip(done.steps, acts, strict=True)]
    why_not = act_reports.LEFT_OUT.get(plan.request.kind, "")
    lines += [f"Left out: {step.words} {why_not}" for step in done.dropped]
    lines += plan.notes
    return Answer(act_reports.of_result(port, plan, done), "\n".join(lines), code=0 if done.good else 1)


def _line(words: str, act: Act | None) -> str:
    if act is None:
        return f"Not begun: {words}"
    return f"{act.get_outcome_display()}: {words}" + (f" {act.error}" if act.error else "")
