"""Test connection: can this Slurm be reached, does it take our token, and may its user see and do what it has to?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from clusters.connectors.base import ConnectorError
from clusters.connectors.clocks import MINUTES, utc
from clusters.connectors.findings import Finding, Findings
from clusters.connectors.mig import OwnShares
from clusters.connectors.slurm import faults, resources
from portal.excerpt import excerpt

if TYPE_CHECKING:
    from clusters.connectors.slurm.rest import SlurmRest

Params = Mapping[str, str]


@dataclass
class CheckSession(Findings):
    """One check of a Slurm: what it has answered so far, and the findings."""

    rest: SlurmRest
    now: int
    cluster: str
    findings: list[Finding] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)  # "slurmrestd", "slurmctld", "slurmdbd", "the user"
    level: str = ""  # AdminLevel of the token's user
    models: dict[str, int] = field(default_factory=dict)  # GPUs of each model that nodes have
    shares: OwnShares = ()  # the operator's rows
    shards: dict[str, tuple[int, int]] = field(default_factory=dict)  # by node: its shards, and its GPUs
    recorded: set[str] = field(default_factory=set)  # gres that slurmdbd has ever been told to record
    rows: list[dict[str, Any]] = field(default_factory=list)
    params: Params = field(default_factory=dict)  # the question that gave the rows

    began: int = field(default_factory=monotonic_ns)

    @property
    def present(self) -> int:
        """Our clock now, in epoch seconds: a slow answer must not look like a wrong clock."""
        return self.now + (monotonic_ns() - self.began) // 10**9

    @property
    def user(self) -> str:
        return self.rest.login.user

    @property
    def operates(self) -> bool:
        return self.level in {"Operator", "Administrator"}


SOON = 7 * 86_400  # seconds of life below which a token's end is told


def reach(session: CheckSession, subject: str) -> None:
    """Whether slurmrestd answers and takes the token, and which release of Slurm over which version of its API."""
    try:
        api = session.rest.discover()
    except faults.LoginRefusedError as error:
        session.ok(subject, f"slurmrestd answers at {session.rest.http.address}.")
        session.fail("Token", str(error), _new_token(session))
        return
    except ConnectorError as error:
        session.fail(subject, str(error), "systemctl status slurmrestd" if error.retry else "")
        return
    session.answers.add("slurmrestd")
    session.ok(subject, f"slurmrestd answers at {session.rest.http.address}.")
    release = f"Slurm {api.release}" if api.release else "A Slurm that does not tell its release"
    if api.is_supported:
        session.ok("Version", f"{release}, read over {api.version}.")
    else:
        session.warn(
            "Version",
            f"{release} speaks {api.version}, newer than any that this release was tried with: it is read like "
            "the newest known one as long as the counts below agree.",
        )


def daemons(session: CheckSession, subject: str) -> None:
    """Whether slurmctld and slurmdbd answer. Either one that does proves the token; ping proves nothing."""
    if other := session.rest.login.other_user():
        session.fail(
            "Token",
            f"The token is {other}'s and the connection says {session.user}: one of the two is wrong.",
            _new_token(session),
        )
        return
    controller = _probe(session, "slurmctld", session.rest.slurm("nodes"), key="nodes", keep=_take_nodes)
    database = _probe(session, "slurmdbd", session.rest.slurmdb("tres"), key="TRES")
    refused = [error for error in (database, controller) if isinstance(error, faults.LoginRefusedError)]
    if controller and database and (refused or session.rest.login.expired(now=session.now)):
        session.fail("Token", str(refused[0] if refused else database), _new_token(session))
        return
    if controller and database:
        session.fail(
            subject,
            f"Neither slurmctld nor slurmdbd answers {session.user}: the token is not accepted, or both are down.",
            f"scontrol ping; sacctmgr show cluster; {_new_token(session)}",
        )
        return
    _token(session)
    if controller:
        session.fail("slurmctld", f"slurmctld does not answer, slurmdbd does: {controller}", "scontrol ping")
    else:
        session.ok("slurmctld", "slurmctld answers.")
    if database:
        session.fail(
            "slurmdbd",
            "slurmdbd or its database does not answer, slurmctld does and takes the token: no usage can be read.",
            "systemctl status slurmdbd mariadb; sacctmgr show cluster",
        )
    else:
        session.ok("slurmdbd", "slurmdbd answers.")


def _probe(
    session: CheckSession,
    name: str,
    path: str,
    *,
    key: str,
    keep: Callable[[CheckSession, Any], None] | None = None,
) -> ConnectorError | None:
    try:
        rows = session.rest.get(path, key=key)[key]
    except ConnectorError as error:
        return error
    session.answers.add(name)
    if keep is not None:
        keep(session, rows)
    return None


def _take_nodes(session: CheckSession, rows: Any) -> None:
    for node in rows:
        models = resources.gpu_models(node.get("gres") or "")
        for model, gpus in models.items():
            session.models[model] = session.models.get(model, 0) + gpus
        shards = resources.shards(node.get("gres") or "")
        session.shards[str(node.get("name") or "")] = shards, sum(models.values())


def _token(session: CheckSession) -> None:
    if session.rest.login.mints:
        session.ok(
            "Token", f"Tokens of {session.user} are made from the key as they are needed, and accepted."
        )
        return
    until = session.rest.login.claims(now=session.now).get("exp")
    if not isinstance(until, int):
        session.ok("Token", f"The token of {session.user} is accepted.")
        return
    end = utc(until, MINUTES)
    left = until - session.now
    if left < SOON:
        session.warn(
            "Token",
            f"The token of {session.user} is accepted, but only until {end}, in {_span(left)}.",
            _new_token(session),
        )
    else:
        session.ok("Token", f"The token of {session.user} is accepted until {end}, for {_span(left)}.")


def _new_token(session: CheckSession) -> str:
    return f"scontrol token username={session.user} lifespan=31536000"


def rights(session: CheckSession, subject: str) -> None:
    """Whether accounting knows our user, with the AdminLevel by which it sees and acts on everybody's jobs."""
    try:
        users = session.rest.get(session.rest.slurmdb(f"user/{session.user}"), key="users")["users"]
    except faults.MissingError:
        users = []
    matches = [user for user in users if user.get("name") == session.user]
    if not matches:
        session.fail(
            subject,
            f"Slurm's accounting has no user {session.user}, so it shows no jobs to it.",
            f"sacctmgr add user {session.user} account=root adminlevel=Operator",
        )
        return
    level = matches[0].get("administrator_level") or "None"
    session.level = level if isinstance(level, str) else str(level[0])
    session.answers.add("the user")
    if session.operates:
        session.ok(
            subject,
            f"{session.user} has AdminLevel {session.level}: it sees everybody's jobs and may act on them.",
        )
    else:
        session.fail(
            subject,
            f"{session.user} has AdminLevel {session.level}: under PrivateData it sees its own jobs alone, without "
            "being told so, and it may not hold, cancel or limit anything.",
            f"sacctmgr modify user {session.user} set adminlevel=Operator",
        )


def clusters(session: CheckSession, subject: str) -> None:
    """Whether the connection's cluster is one that slurmdbd knows, and the one that slurmrestd answers for."""
    rows = session.rest.get(session.rest.slurmdb("clusters"), key="clusters")["clusters"]
    names = sorted(str(row["name"]) for row in rows)
    answers_for = session.rest.api.cluster
    if session.cluster and session.cluster not in names:
        session.fail(
            subject,
            f"The connection names {session.cluster}, and slurmdbd knows {excerpt(', '.join(names)) or 'no cluster'}.",
            "scontrol show config | grep ClusterName",
        )
    elif session.cluster and answers_for and answers_for != session.cluster:
        session.fail(
            subject,
            f"The connection names {session.cluster}, and slurmrestd answers for {answers_for}: its jobs could not "
            "be acted on.",
            "scontrol show config | grep ClusterName",
        )
    elif len(names) > 1 and not session.cluster:
        session.fail(
            subject,
            f"slurmdbd serves several clusters ({', '.join(names)}): write into the connection which one this is.",
            f'slurm_cluster = "{answers_for or names[0]}"',
        )
    else:
        alone = "" if len(names) > 1 else ", the only one behind its slurmdbd"
        session.ok(
            subject, f"Slurm's cluster is {session.cluster or answers_for or ', '.join(names)}{alone}."
        )


def _span(seconds: int) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
