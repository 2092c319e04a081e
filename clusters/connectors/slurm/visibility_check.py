"""Whether our user is shown everybody's jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusters.connectors.base import ConnectorError
from clusters.connectors.slurm import faults

if TYPE_CHECKING:
    from clusters.connectors.slurm.rest import SlurmRest

_LEVELS = frozenset({"operator", "administrator"})
_BY_THEMSELVES = frozenset({"root", "slurm"})  # shown all without a level of their own


def require(rest: SlurmRest) -> None:
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
    raise ConnectorError(
        f"{user} may be shown only a part of the jobs, without being told so, since its AdminLevel is not "
        f"Operator: nothing was read. Let an administrator of Slurm run `{mend}`.",
        retry=False,
    )


def _words(level: object) -> list[str]:
    """A word in v0.0.38, a list of them later."""
    values = level if isinstance(level, list) else [level]
    return [str(word).lower() for word in values]
