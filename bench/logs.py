"""Accounting logs of other schedulers, from the file to the rated totals, beside sacct's file of the same jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

from bench import instance, jobs, world
from bench.intake import READY, RUN, ingest_file
from bench.jobs import Job
from bench.result import Goal, Result, Side, in_turn
from bench.scale import Scale
from clusters.connectors.prometheus.token_options import METER

LSF = (
    '"JOB_FINISH" "10.108" {j.ended} {j.number} 1501 33554434 {j.cpus} {j.submitted} 0 0 {j.started} "{j.user}" '
    '"{j.queue}" "" "" "" "login1" "/home/{j.user}" "" "" "" "{j.submitted}.{j.number}" 0 1 "n1" 64 100.0 "train" '
    '"python train.py" 0.004997 0.006155 3748 0 -1 0 0 436 4 0 928 0 -1 0 0 0 19 2 -1 "" "{account}" 0 2 "" "" 3 2048 '
    '0 "" "" "" "" 0 "" 0 "" -1 "" "" "" "" -1 "" "" 5136 "" {j.started} "" "" 1 1110 "default" 0 86400 4194304 1024 '
    '"select[type == any] rusage[ngpus_physical={j.gpus}.00] span[ptile=1]" "" -1 "" -1 0 "" 0 0 "" {run} "/home" 0 "" '
    '0.000000 0.00 0.00 0.00 0.00 1 "n1" -1 0 0 0 0 1 "schedulingOverhead" "0.00"\n'
)
GRID_ENGINE = (
    "{j.queue}:n1:{account}:{j.user}:train:{j.number}:sge:0:{j.submitted}:{j.started}:{j.ended}:0:0:7200:0:0:0:0:0:0:0:"
    "0:0:0:0:0:0:0:0:0:0:NONE:defaultdepartment:mpi:{j.cpus}:0:0:0:0:-l gpu={j.gpus}:0:NONE:0:0:0\n"
)


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """Jobs of 45 days in each format."""
    if not names & set(FILES):
        return
    count, accounts = scale.of(20_000), 40
    workload = list(jobs.jobs(count, accounts=accounts, days=45))
    sacct = instance.HOME / "jobs.sacct"
    sacct.write_text("".join(jobs.sacct_lines(iter(workload))))
    instance.copy(instance.EMPTY, READY)
    world.build(accounts)
    world.price_tokens(METER, ("model", "direction"))
    world.resolve_terms()
    fresh = partial(instance.copy, READY, RUN)
    for name, (form, write) in FILES.items():
        if name not in names:
            continue
        file = instance.HOME / f"jobs.{name}"
        file.write_text("".join(write(workload)))
        ours = Side(partial(_import, file, form), fresh)
        cost, least = in_turn(postmaster, ours, Side(partial(ingest_file, sacct), fresh), rounds=scale.rounds)
        title = f"{form} → rated totals, beside sacct's file"
        yield Result(name, title, count, "jobs", cost, least, Goal(at_least="0.40"))
    instance.drop(RUN, READY)


def _import(file: Path, form: str) -> None:
    from billing.rating import ingest
    from clusters.connectors.accounting.formats import open_export
    from clusters.meters import load_units
    from clusters.models import Cluster

    export = open_export(file, form, zone=ZoneInfo("UTC"), meters=load_units())
    ingest.ingest(
        cluster=Cluster.objects.get(),
        rows=export.rows(),
        reading=export.reading,
        source=file.name,
        moment=world.MOMENT,
    )


def _lines(template: str, workload: Iterable[Job]) -> Iterator[str]:
    for j in workload:
        yield template.format(j=j, account=jobs.account_name(j.account), run=j.ended - j.started)


def _pbs(workload: Iterable[Job]) -> Iterator[str]:
    """A start and an end of each, as PBS Professional writes them."""
    for j in workload:
        words = (
            f"user={j.user} group=x account={jobs.account_name(j.account)} project=_pbs_project_default jobname=train "
            f"queue={j.queue} ctime={j.submitted} qtime={j.submitted} etime={j.submitted} start={j.started} "
            f"exec_host=n1/0*{j.cpus} exec_vnode=(n1:ncpus={j.cpus}:ngpus={j.gpus}:mem={j.memory}gb) "
            f"Resource_List.select=1:ncpus={j.cpus}:ngpus={j.gpus} Resource_List.walltime=24:00:00"
        )
        yield f"{_stamp(j.started)};S;{j.number}.pbs;{words}\n"
        yield f"{_stamp(j.ended)};E;{j.number}.pbs;{words} end={j.ended} Exit_status=0\n"


def _opencost(workload: Iterable[Job]) -> Iterator[str]:
    def allocation(j: Job) -> dict[str, object]:
        hours = (j.ended - j.started) / 3600
        return {
            "properties": {
                "namespace": jobs.account_name(j.account),
                "pod": f"train-{j.number}",
                "node": "n1",
            },
            "start": _iso(j.started),
            "end": _iso(j.ended),
            "cpuCoreHours": j.cpus * hours,
            "gpuHours": j.gpus * hours,
            "ramByteHours": j.memory * hours * 2**30,
        }

    yield json.dumps({"data": [{f"pod-{j.number}": allocation(j) for j in workload if j.ended > j.started}]})


def _spend_logs(workload: Iterable[Job]) -> Iterator[str]:
    """A request for every third job, of whose tokens some were read, some cached and some written: three sums."""
    for j in islice(workload, 0, None, 3):
        request = {
            "request_id": f"chatcmpl-{j.number}",
            "call_type": "acompletion",
            "api_key": j.user,
            "spend": 0.0123,
            "total_tokens": 1_500,
            "prompt_tokens": 1_200,
            "completion_tokens": 300,
            "startTime": _iso(j.started),
            "endTime": _iso(max(j.ended, j.started)),
            "model": f"llama-{j.gpus}b",
            "team_id": jobs.account_name(j.account),
            "cache_hit": "False",
            "metadata": json.dumps({"usage_object": {"prompt_tokens_details": {"cached_tokens": 200}}}),
        }
        yield f"{json.dumps(request)}\n"


def _stamp(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%m/%d/%Y %H:%M:%S}"


def _iso(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}"


FILES: dict[str, tuple[str, Callable[[Iterable[Job]], Iterator[str]]]] = {
    "pbs": ("pbs", _pbs),
    "lsf": ("lsf", partial(_lines, LSF)),
    "gridengine": ("grid-engine", partial(_lines, GRID_ENGINE)),
    "opencost": ("opencost", _opencost),
    "litellm": ("litellm", _spend_logs),
}
