"""How long a page takes while a file is taken in, beside how long it takes alone."""

from __future__ import annotations

import time

from bench import closing, instance, jobs, served
from bench.meter import Cost
from bench.pages import REQUESTS, at95
from bench.result import Goal, Result
from bench.scale import Scale
from bench.served import Site

LEAST = 30  # requests during the import; fewer say nothing


def page(scale: Scale, web: Site, address: str) -> Result:
    """p95 of wall time, from the first row of the import to its last."""
    file = instance.HOME / "busy.sacct"
    workload = jobs.jobs(scale.of(50_000), accounts=scale.of(1_000), days=25, seed=3)
    file.write_text("".join(jobs.sacct_lines(workload)))
    alone = [_wall(web, address) for _ in range(REQUESTS)]
    environment = {"DATABASE_URL": served.url_of(closing.RUN)}
    importing = served.run(
        "manage", "import_usage", "gpu1", str(file), "--format", "sacct", environ=environment
    )
    during: list[float] = []
    while importing.poll() is None:
        during.append(_wall(web, address))
    if importing.returncode or len(during) < LEAST:
        raise AssertionError(f"The import ended with {importing.returncode} after {len(during)} pages.")
    title = "the overview over HTTP, p95, while a file is taken in, beside alone"
    costs = Cost(0, 0, at95(during), 0), Cost(0, 0, at95(alone), 0)
    return Result("busy", title, 1, "pages", *costs, Goal(at_most="3"), by_wall=True)


def _wall(web: Site, address: str) -> float:
    began = time.perf_counter()
    web.get(address)
    return time.perf_counter() - began
