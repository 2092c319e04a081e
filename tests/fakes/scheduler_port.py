"""A cluster whose slurmrestd is the stand-in, and the door to it."""

from __future__ import annotations

import pytest

from clusters.connectors.base import Secret
from clusters.connectors.http import Endpoint
from clusters.connectors.mig import own_shares
from clusters.connectors.shards import shard_rows
from clusters.connectors.slurm.acts import SlurmActs
from clusters.connectors.slurm.login import SlurmLogin
from clusters.connectors.slurm.rest import SlurmRest
from clusters.enforcement_plan import SchedulerPort
from clusters.models import Cluster, ClusterKind, Connection
from portal.core.vault import seal
from tests.builders import a_cluster
from tests.fakes.slurm_world import Association, World
from tests.fakes.slurmrestd import StandIn


def a_world() -> World:
    """acme above vision and speech; vision may have 8 GPUs at once, and whoever is in acme 4 in one job."""
    return World(
        associations=[
            Association(1, "root", parent=""),
            Association(2, "acme", tres={"per.job": {"gres/gpu": 4}}),
            Association(
                3,
                "vision",
                parent="acme",
                tres={"total": {"cpu": 512, "gres/gpu": 8}, "group.minutes": {"mem": 2**40}},
                jobs={"per.count": 40, "active": 7},
            ),
            Association(4, "vision", user="ben"),
            Association(5, "speech", parent="acme"),
        ]
    )


def rest(slurm: StandIn, user: str = "portal") -> SlurmRest:
    login = SlurmLogin(user, Secret(slurm.token(user)))
    client = SlurmRest(Endpoint(base_url=slurm.url), login, clock=lambda: slurm.now)
    slurm.clients.append(client)
    return client


def a_port(slurm: StandIn, user: str = "portal", *, name: str = "gpu1") -> SchedulerPort:
    """To a cluster of that name; patience is short, since the stand-in is quick."""
    cluster = a_cluster(name, kind=ClusterKind.SLURM)
    shards = shard_rows(own_shares(cluster.shares, "shares"))
    return SchedulerPort(cluster, SlurmActs(rest(slurm, user), shards=shards, patience=0))


def connected(slurm: StandIn, *, name: str = "gpu1", user: str = "portal", token: str = "") -> Cluster:
    """The same as it rests in the database, for commands and pages."""
    cluster = a_cluster(name, kind=ClusterKind.SLURM)
    Connection.objects.create(
        cluster=cluster, base_url=slurm.url, user=user, token=seal(token or slurm.token(user))
    )
    return cluster


def has_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done to a Slurm has to show at once."""
    defaults = SlurmActs.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience", 0)
