"""What a sealed month takes on the disk, and what sealing, proving, dropping, loading and importing it again cost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import partial
from itertools import islice

from django.conf import settings
from django.db.models import Sum

from bench import instance, intake, jobs, world
from bench.meter import measure
from bench.result import Figure, Result
from bench.scale import Scale

NAME, RUN = "sealed", "bench_run"
MONTH, ACCOUNTS, DAYS = date(2026, 1, 1), 40, 31
MOST_BYTES, MOST_PROOF = 80, 1  # a job; CPU seconds per million jobs
LEAST_RATE, MOST_MEMORY = 0.2, 200  # of importing its file again, beside an unsealed month; MiB
MILLION = 1_000_000


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """A month of jobs: sealed, its files proved, dropped, imported again to no effect, corrected, and loaded back."""
    if NAME not in names:
        return
    from bench import closing
    from billing.models import SealedFile
    from billing.proof import checks
    from billing.sealed_months import drop, seal, unseal, verify
    from clusters.models import UsageRecord

    count = scale.of(1_000_000)
    file = instance.HOME / "sealed.sacct"
    file.write_text("".join(jobs.sacct_lines(jobs.jobs(count, accounts=ACCOUNTS, days=DAYS - 2))))
    instance.copy(instance.EMPTY, RUN)
    world.build(ACCOUNTS)
    intake.ingest_file(file)
    closing.everybody()
    settings.CLUSTERTAB_SEALED_MONTHS = instance.HOME / "sealed"
    checks.prove(moment=world.MOMENT)
    sealing = measure(partial(seal.seal_month, month=MONTH, moment=world.MOMENT, quiet_months=0), postmaster)
    sizes = dict(SealedFile.objects.values_list("kind").annotate(Sum("bytes")).order_by("kind"))
    proof = measure(verify.prove_files, postmaster)
    again = measure(partial(intake.ingest_file, file), postmaster)
    drops = partial(drop.drop_month, month=MONTH, moment=world.MOMENT, all_processes_replaced=True)
    dropping = measure(drops, postmaster)
    replay = measure(partial(intake.ingest_file, file), postmaster)
    if UsageRecord.objects.exists():
        raise AssertionError("Importing a dropped month again has written to it.")
    one = next(islice(jobs.jobs(count, accounts=ACCOUNTS, days=DAYS - 2), count // 2, None))
    longer = instance.HOME / "longer.sacct"
    longer.write_text("".join(jobs.sacct_lines(iter([one._replace(ended=one.ended + 60)]))))
    late = measure(partial(intake.ingest_file, longer), postmaster)
    if UsageRecord.objects.count() != 1:
        raise AssertionError("A late fact of a dropped month has not brought its record back alone.")
    loading = measure(partial(unseal.unseal_month, month=MONTH), postmaster)
    yield Result(
        NAME, "a month as files: sealed, proved, dropped, loaded back", count, "jobs", sealing, proof,
        figures=(
            Figure("bytes a job", sum(sizes.values()) / count, MOST_BYTES),
            *(Figure(f"  of these {kind}", size / count) for kind, size in sizes.items()),
            Figure("CPU of the proof of a million jobs, s", proof.cpu / count * MILLION, MOST_PROOF),
            Figure("CPU of sealing a million jobs, s", sealing.cpu / count * MILLION),
            Figure("CPU of dropping a million jobs, s", dropping.cpu / count * MILLION),
            Figure(
                "rate of importing its file again, of that before", again.wall / replay.wall, LEAST_RATE, rises=True
            ),
            Figure("  memory of that process at most, MiB", replay.peak / 1024, MOST_MEMORY),
            Figure("CPU of one late fact, s", late.cpu),
            Figure("  time of it, s", late.wall),
            Figure("CPU of loading a million jobs, s", loading.cpu / count * MILLION),
        ),
    )  # fmt: skip
    instance.drop(RUN)
