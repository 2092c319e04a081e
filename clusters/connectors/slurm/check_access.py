"""Whether a Slurm can be reached, takes our token, and lets its user see and do what it has to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import jwt

from clusters.connectors.base import ConnectorError
from clusters.connectors.slurm import faults, nodes
from clusters.connectors.slurm.session import CheckSession
from portal.excerpt import excerpt

SOON = 7 * 86_400  # seconds of life below which a token's end is told


def reach(visit: CheckSession, subject: str) -> None:
    """Whether slurmrestd answers and takes the token, and which release of Slurm over which version of its API."""
    try:
        api = visit.rest.discover()
    except faults.LoginRefusedError as error:
        visit.ok(subject, f"slurmrestd answers at {visit.rest.http.address}.")
        visit.fail("Token", str(error), _new_token(visit))
        return
    except ConnectorError as error:
        visit.fail(subject, str(error), "systemctl status slurmrestd" if error.retry else "")
        return
    visit.answers.add("slurmrestd")
    visit.ok(subject, f"slurmrestd answers at {visit.rest.http.address}.")
    release = f"Slurm {api.release}" if api.release else "A Slurm that does not tell its release"
    if api.is_supported:
        visit.ok("Version", f"{release}, read over {api.version}.")
    else:
        visit.warn(
            "Version",
            f"{release} speaks {api.version}, newer than any that this release was tried with: it is read like "
            "the newest known one as long as the counts below agree.",
        )


def daemons(visit: CheckSession, subject: str) -> None:
    """Whether slurmctld and slurmdbd answer. Either one that does proves the token; ping proves nothing."""
    if other := visit.rest.login.other_user():
        visit.fail(
            "Token",
            f"The token is {other}'s and the connection says {visit.user}: one of the two is wrong.",
            _new_token(visit),
        )
        return
    controller = _probe(visit, "slurmctld", visit.rest.slurm("nodes"), key="nodes", keep=_take_nodes)
    database = _probe(visit, "slurmdbd", visit.rest.slurmdb("tres"), key="TRES")
    refused = [error for error in (database, controller) if isinstance(error, faults.LoginRefusedError)]
    if controller and database and (refused or visit.rest.login.expired(now=visit.now)):
        visit.fail("Token", str(refused[0] if refused else database), _new_token(visit))
        return
    if controller and database:
        visit.fail(
            subject,
            f"Neither slurmctld nor slurmdbd answers {visit.user}: the token is not accepted, or both are down.",
            f"scontrol ping; sacctmgr show cluster; {_new_token(visit)}",
        )
        return
    _token(visit)
    if controller:
        visit.fail("slurmctld", f"slurmctld does not answer, slurmdbd does: {controller}", "scontrol ping")
    else:
        visit.ok("slurmctld", "slurmctld answers.")
    if database:
        visit.fail(
            "slurmdbd",
            "slurmdbd or its database does not answer, slurmctld does and takes the token: no usage can be read.",
            "systemctl status slurmdbd mariadb; sacctmgr show cluster",
        )
    else:
        visit.ok("slurmdbd", "slurmdbd answers.")


def _probe(
    visit: CheckSession,
    name: str,
    path: str,
    *,
    key: str,
    keep: Callable[[CheckSession, Any], None] | None = None,
) -> ConnectorError | None:
    try:
        rows = visit.rest.get(path, key=key)[key]
    except ConnectorError as error:
        return error
    visit.answers.add(name)
    if keep is not None:
        keep(visit, rows)
    return None


def _take_nodes(visit: CheckSession, rows: Any) -> None:
    for node in rows:
        for model, gpus in nodes.models(node.get("gres") or "").items():
            visit.models[model] = visit.models.get(model, 0) + gpus


def _token(visit: CheckSession) -> None:
    if visit.rest.login.mints:
        visit.ok("Token", f"Tokens of {visit.user} are made from the key as they are needed, and accepted.")
        return
    until = _claims(visit).get("exp")
    if not isinstance(until, int):
        visit.ok("Token", f"The token of {visit.user} is accepted.")
        return
    end = f"{datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC"
    left = until - visit.now
    if left < SOON:
        visit.warn(
            "Token",
            f"The token of {visit.user} is accepted, but only until {end}, in {_span(left)}.",
            _new_token(visit),
        )
    else:
        visit.ok("Token", f"The token of {visit.user} is accepted until {end}, for {_span(left)}.")


def _claims(visit: CheckSession) -> dict[str, Any]:
    try:
        token = visit.rest.login.token(now=visit.now).reveal()
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except (ConnectorError, jwt.PyJWTError):
        return {}
    return claims


def _new_token(visit: CheckSession) -> str:
    return f"scontrol token username={visit.user} lifespan=31536000"


def rights(visit: CheckSession, subject: str) -> None:
    """Whether accounting knows our user, with the AdminLevel by which it sees and acts on everybody's jobs."""
    try:
        users = visit.rest.get(visit.rest.slurmdb(f"user/{visit.user}"), key="users")["users"]
    except faults.MissingError:
        users = []
    matches = [user for user in users if user.get("name") == visit.user]
    if not matches:
        visit.fail(
            subject,
            f"Slurm's accounting has no user {visit.user}, so it shows no jobs to it.",
            f"sacctmgr add user {visit.user} account=root adminlevel=Operator",
        )
        return
    level = matches[0].get("administrator_level") or "None"
    visit.level = level if isinstance(level, str) else str(level[0])
    visit.answers.add("the user")
    if visit.operates:
        visit.ok(
            subject,
            f"{visit.user} has AdminLevel {visit.level}: it sees everybody's jobs and may act on them.",
        )
    else:
        visit.fail(
            subject,
            f"{visit.user} has AdminLevel {visit.level}: under PrivateData it sees its own jobs alone, without "
            "being told so, and it may not hold, cancel or limit anything.",
            f"sacctmgr modify user {visit.user} set adminlevel=Operator",
        )


def clusters(visit: CheckSession, subject: str) -> None:
    """Whether the connection's cluster is one that slurmdbd knows, and the one that slurmrestd answers for."""
    rows = visit.rest.get(visit.rest.slurmdb("clusters"), key="clusters")["clusters"]
    names = sorted(str(row["name"]) for row in rows)
    answers_for = visit.rest.api.cluster
    if visit.cluster and visit.cluster not in names:
        visit.fail(
            subject,
            f"The connection names {visit.cluster}, and slurmdbd knows {excerpt(', '.join(names)) or 'no cluster'}.",
            "scontrol show config | grep ClusterName",
        )
    elif visit.cluster and answers_for and answers_for != visit.cluster:
        visit.fail(
            subject,
            f"The connection names {visit.cluster}, and slurmrestd answers for {answers_for}: its jobs could not "
            "be acted on.",
            "scontrol show config | grep ClusterName",
        )
    elif len(names) > 1 and not visit.cluster:
        visit.fail(
            subject,
            f"slurmdbd serves several clusters ({', '.join(names)}): write into the connection which one this is.",
            f'slurm_cluster = "{answers_for or names[0]}"',
        )
    else:
        alone = "" if len(names) > 1 else ", the only one behind its slurmdbd"
        visit.ok(subject, f"Slurm's cluster is {visit.cluster or answers_for or ', '.join(names)}{alone}.")


def _span(seconds: int) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
