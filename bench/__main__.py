"""`./run bench [NAMES] [--quick] [--json]`: ours beside the limit of this machine, in the same run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

from bench import instance
from bench.result import Result
from bench.scale import QUICK, Scale
from portal.dev.embedded.host import EmbeddedError

NAMES = (
    "parse", "decode", "ingest", "floor", "replay", "rate", "rerate", "reprice", "correct", "twoworkers", "fair",
    "fairchanges", "fairfiles", "whatif",
    "grow", "growrate", "close", "growclose", "dashboard", "page", "paint", "growpage", "busy", "web", "worker",
    "csv", "parquet", "pdf20", "pdf500", "pull", "kube", "kubehours", "kubegpus",
    "kuberequests", "kubeuse", "history", "historyone", "bytes",
    "webhooks", "webhooksdead", "apilist", "apideep", "apicost", "apirare", "apiusage", "apiquote", "apikey",
    "push", "pushsums", "quotas", "mayrun", "ratequotas", "workerquotas",
    "sealed", "walk", "pbs", "lsf", "gridengine", "opencost", "litellm",
)  # fmt: skip


APART = ("years", "slice", "set-up")  # only where named: two take hours, the last needs the network


def main() -> int:
    options = _options()
    names = set(options.names or NAMES)
    scale = Scale(options.part)
    results: list[Result] = []
    try:
        with instance.started() as server:
            postmaster = server.main_process()
            if postmaster is None:
                raise EmbeddedError("The bench's database has ended.")
            _heading(options.json)
            for result in _works(scale, postmaster, names):
                results.append(result)
                _show(result, options.json, gated=scale.is_full)
    except (EmbeddedError, instance.BusyError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    missed = [result.name for result in results if result.missed] if scale.is_full else []
    if options.json:
        sys.stdout.write(
            json.dumps(
                {
                    "part": scale.part,
                    "missed": missed,
                    "works": [_data(r, gated=scale.is_full) for r in results],
                }
            )
        )
    if missed:
        sys.stderr.write(f"Goals missed: {', '.join(missed)}.\n")
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(NAMES)}; all of these where none is named; or {', '.join(APART)}",
    )
    parser.add_argument(
        *("--part", "-p"), type=int, default=1, metavar="N", help="N times smaller, one round, no goals"
    )
    parser.add_argument("--quick", dest="part", action="store_const", const=QUICK, help="as --part 10")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.part < 1:
        parser.error("--part is 1 or more")
    if unknown := set(options.names) - {*NAMES, *APART}:
        parser.error(f"no work is called {', '.join(sorted(unknown))}")
    return options


def _works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    from bench import (
        api,
        documents,
        fair,
        focus,
        growth,
        history,
        intake,
        kubernetes,
        logs,
        million,
        pulling,
        pushing,
        quota_costs,
        quotas,
        rating,
        sealing,
        set_up,
        sizes,
        two_workers,
        walk,
        webhooks,
        whatif,
        years,
    )

    yield from intake.works(scale, postmaster, names)
    yield from logs.works(scale, postmaster, names)
    yield from history.works(scale, postmaster, names)
    yield from rating.works(scale, postmaster, names)
    yield from two_workers.works(scale, postmaster, names)
    yield from fair.works(scale, postmaster, names)
    yield from whatif.works(scale, postmaster, names)
    yield from growth.works(scale, postmaster, names)
    yield from million.works(scale, postmaster, names)
    yield from documents.works(scale, postmaster, names)
    yield from focus.works(scale, postmaster, names)
    yield from pulling.works(scale, postmaster, names)
    yield from kubernetes.works(scale, postmaster, names)
    yield from sizes.works(scale, postmaster, names)
    yield from sealing.works(scale, postmaster, names)
    yield from webhooks.works(scale, postmaster, names)
    yield from pushing.works(scale, postmaster, names)
    yield from quotas.works(scale, postmaster, names)
    yield from quota_costs.works(scale, postmaster, names)
    yield from walk.works(scale, postmaster, names)
    yield from api.works(scale, postmaster, names)
    yield from years.works(scale, postmaster, names)
    yield from set_up.works(scale, postmaster, names)


_ROW = "{:<11}{:<44}{:>13}{:>13}{:>8}{:>9}{:>9}{:>9}{:>9}  {}\n"


def _heading(as_json: bool) -> None:
    if not as_json:
        names = ("ours /s", "limit /s", "share", "goal", "cpu s", "wall s", "peak MiB", "")
        sys.stdout.write(_ROW.format("work", "", *names))


def _show(result: Result, as_json: bool, *, gated: bool) -> None:
    if as_json:
        return
    ours = result.ours
    sys.stdout.write(
        _ROW.format(
            result.name,
            result.title,
            f"{result.rate(ours):,.0f}",
            f"{result.rate(result.limit):,.0f}",
            f"{result.speed:.2f}",
            result.goal.text(),
            f"{ours.cpu:.2f}",
            f"{ours.wall:.2f}",
            f"{ours.peak / 1024:.0f}",
            _remark(result, gated=gated),
        )
    )
    for figure in result.figures:
        sys.stdout.write(f"{'':<11}{figure.text()}{', missed' if gated and figure.missed else ''}\n")
    sys.stdout.flush()


def _remark(result: Result, *, gated: bool) -> str:
    remarks = [result.detail] if result.detail else []
    if result.memory is not None:
        took, most = (size / 1024 for size in result.memory)
        remarks.append(f"memory {took:.0f} MiB of {most:.0f}")
    if result.within is not None:
        remarks.append(f"{result.ours.wall:.1f} s of {result.within}")
    if gated and result.missed:
        remarks.append("missed")
    return ", ".join(remarks)


def _data(result: Result, *, gated: bool) -> dict[str, object]:
    return {
        "name": result.name,
        "title": result.title,
        "amount": result.amount,
        "unit": result.unit,
        "share": round(result.speed, 3),
        "goal": result.goal.text(),
        "missed": gated and result.missed,
        "ours": asdict(result.ours),
        "limit": asdict(result.limit),
        "memory": result.memory,
        "within": result.within,
        "detail": result.detail,
        "figures": [asdict(figure) for figure in result.figures],
    }


if __name__ == "__main__":
    sys.exit(main())
