"""Whether our user may see everybody's jobs, and what is wrong where slurmdbd gives no answer."""

from __future__ import annotations

from clusters.connectors.base import ConnectorError
from clusters.connectors.slurm import faults
from clusters.connectors.slurm.rest import SlurmRest

_LEVELS = frozenset({"operator", "administrator"})
_BY_THEMSELVES = frozenset({"root", "slurm"})  # shown all without a level of their own


def require_operator(rest: SlurmRest) -> None:
    """Raises `ConnectorError` for a user without a level that shows it all jobs.

    Under PrivateData=jobs such a user is answered with its own jobs, successfully and without a word about the
    others: they would be passed over for good, since the watermark moves.
    """
    user = rest.login.user
    if user in _BY_THEMSELVES:
        return
    try:
        users = rest.get(rest.slurmdb(f"user/{user}"), key="users")["users"]
    except faults.NoSuchPathError:
        return  # a proxy that lets nothing through but the jobs: the connection's check tells of it
    except faults.MissingError:
        users = []
    levels = [row.get("administrator_level") for row in users if row.get("name") == user]
    if any(_LEVELS.intersection(_words(level)) for level in levels):
        return
    mend = (
        f"sacctmgr modify user {user} set adminlevel=Operator"
        if levels
        else f"sacctmgr add user {user} account=root adminlevel=Operator"
    )
    raise ConnectorError("slurm-not-operator", retry=False, user=user, command=mend)


def _words(level: object) -> list[str]:
    """A word in v0.0.38, a list of them later."""
    values = level if isinstance(level, list) else [level]
    return [str(word).lower() for word in values]


def without_slurmdbd(rest: SlurmRest) -> ConnectorError:
    """What is wrong where slurmdbd gives no answer: asks slurmctld once.

    Most releases answer a refused token as they answer for a daemon that is down. The other daemon tells: one that
    answers has taken the token.
    """
    user, address = rest.login.user, rest.http.address
    try:
        rest.get(rest.slurm("nodes"), key="nodes")
    except faults.LoginRefusedError as refused:
        return refused
    except ConnectorError:
        return faults.DatabaseDownError("slurm-all-down", retry=True, address=address, user=user)
    return faults.DatabaseDownError("slurmdbd-down", retry=True, address=address, user=user)
