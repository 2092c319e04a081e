"""The agent of `deploy/agent/` as a process, on the oldest Python that there is, and exports for it to send."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from django.db.models import Sum

from billing.models import PeriodTotal
from clusters.models import Cluster, ClusterKind, Quarantined, UsageRecord
from portal.core.tenants.models import Tenant, User
from portal.env import ROOT
from tests.api.door import a_key
from tests.builders import LONG_AGO, a_plan, a_tenant, an_operator

AGENT = ROOT / "deploy" / "agent" / "clustertab_agent.py"
PATIENCE = 300  # seconds
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


@cache
def oldest_python() -> str:
    """One as old as the agent promises, where there is one: on the PATH, or beside the one that runs this."""
    named = [shutil.which(f"python3.{minor}") for minor in range(6, 11)]
    beside = [
        str(found)
        for minor in range(6, 11)
        for found in Path(sys.base_prefix).parent.glob(f"3.{minor}.*/bin/python")
    ]
    for found in (*beside, *named):
        if (
            found
            and subprocess.run([found, "-c", "import sqlite3, ssl"], capture_output=True).returncode == 0
        ):
            return found
    return sys.executable


class Agent:
    """With a directory to send from, or with `sacct`; its state and its key lie in `home`."""

    def __init__(
        self, home: Path, url: str, secret: str, *, cluster: str = "own", **sections: Mapping[str, Any]
    ) -> None:
        home.mkdir(exist_ok=True)
        self.home, self.state = home, home / "state"
        self.inbox = home / "in"
        self.inbox.mkdir(exist_ok=True)
        key = home / "key"
        key.write_text(secret + "\n")
        key.chmod(0o600)
        config: dict[str, Mapping[str, Any]] = {
            "portal": {"url": url, "cluster": cluster, "key_file": key},
            "agent": {"state_dir": self.state},
        }
        config |= sections or {"directory": {"path": self.inbox, "settle_seconds": 0}}
        lines = [
            line
            for section, values in config.items()
            for line in (f"[{section}]", *(f"{name} = {value}" for name, value in values.items()))
        ]
        self.config = home / "agent.conf"
        self.config.write_text("\n".join(lines) + "\n")
        self.environ: Mapping[str, str] = os.environ

    def command(self, *options: str) -> list[str]:
        return [oldest_python(), "-W", "error", str(AGENT), "--config", str(self.config), *options]

    def does(self, *options: str, code: int = 0) -> str:
        """Run it to its end; what it said."""
        done = subprocess.run(
            self.command(*options), env=dict(self.environ), capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == code, done.stderr
        return done.stderr + done.stdout

    def begins(self, *options: str) -> subprocess.Popen[bytes]:
        with (self.home / "agent.log").open("ab") as log:
            return subprocess.Popen(self.command(*options), env=dict(self.environ), stderr=log)

    @property
    def log(self) -> str:
        return (self.home / "agent.log").read_text()


def a_pushed_cluster(*accounts: str, name: str = "own", slug: str = "pushed") -> tuple[Cluster, Tenant]:
    """A cluster for the agent, all accounts of which one tenant owns."""
    return _cluster(name, ClusterKind.PUSH, slug, accounts)


def an_imported_cluster(*accounts: str) -> tuple[Cluster, Tenant]:
    """Its twin, for files."""
    return _cluster("files", ClusterKind.IMPORT, "imported", accounts)


def _cluster(name: str, kind: ClusterKind, slug: str, accounts: tuple[str, ...]) -> tuple[Cluster, Tenant]:
    cluster = Cluster.objects.create(name=name, kind=kind)
    plan = a_plan(
        slug,
        charges=["gpu", "cpu"],
        prices=[("gpu-hour", {}, "1.37", LONG_AGO), ("cpu-core-hour", {}, "0.01", LONG_AGO)],
    )
    return cluster, a_tenant(slug, plan=plan, accounts=[(cluster, account) for account in accounts])


def an_operators_key() -> str:
    op = User.objects.filter(is_superuser=True).first() or an_operator()
    return a_key(op, None, "usage:push").secret


def ledger(cluster: Cluster) -> list[tuple[Any, ...]]:
    """All that is billed by or shown, of each record."""
    columns = (
        *(
            "submitted",
            "account__name",
            "user",
            "job_id",
            "name",
            "queue",
            "qos",
            "gpus",
            "gpu_model",
            "mig_profile",
        ),
        *(
            "share_num",
            "share_den",
            "cpu_milli",
            "memory_mib",
            "nodes",
            "node_list",
            "time_limit",
            "eligible",
        ),
        *("started", "ended", "seen_until", "suspended", "state", "exit_code"),
    )
    return sorted(UsageRecord.objects.filter(cluster=cluster).values_list(*columns), key=repr)


def seconds(tenant: Tenant) -> list[tuple[Any, ...]]:
    """Resource-seconds by everything that totals are kept by."""
    totals = (
        PeriodTotal.objects.filter(tenant=tenant)
        .values_list("period__start", "gpu_model", "resource")
        .order_by()
    )
    return sorted(totals.annotate(units=Sum("units")), key=repr)


def quarantine(cluster: Cluster) -> list[str]:
    return sorted(
        Quarantined.objects.filter(cluster=cluster, resolved_at=None).values_list("code", flat=True)
    )


def recent(export: Path | str) -> str:
    """An export moved by whole weeks, so that its last end is some weeks ago: nothing from years ago is taken."""
    text = export if isinstance(export, str) else gzip.decompress(export.read_bytes()).decode()
    last = max(datetime.fromisoformat(found) for found in MOMENT.findall(text))
    weeks = (datetime.fromtimestamp(time.time()) - last).days // 7 - 3

    @cache
    def moved(moment: str) -> str:
        return (datetime.fromisoformat(moment) + timedelta(weeks=weeks)).isoformat()

    return MOMENT.sub(lambda match: moved(match[0]), text)


def accounts_of(text: str) -> list[str]:
    header, *rows = text.splitlines()
    column = header.split("|").index("Account")
    return sorted({row.split("|")[column] for row in rows if row})
