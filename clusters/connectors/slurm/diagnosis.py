"""Whether a Slurm that gives no answer refuses our token or is down: most releases say the same of both.

The other daemon tells: one that answers has taken the token.
"""

from __future__ import annotations

from clusters.connectors.base import ConnectorError
from clusters.connectors.slurm import faults
from clusters.connectors.slurm.rest import SlurmRest


def without_slurmdbd(rest: SlurmRest) -> ConnectorError:
    """What is wrong where slurmdbd gives no answer: asks slurmctld once."""
    user, address = rest.login.user, rest.http.address
    try:
        rest.get(rest.slurm("nodes"), key="nodes")
    except faults.LoginRefusedError as refused:
        return refused
    except ConnectorError:
        return faults.DatabaseDownError(
            f"Neither slurmctld nor slurmdbd behind {address} answers {user}: its token is not accepted, or both are "
            f"down. `scontrol ping` and `sacctmgr show cluster` show the daemons; `scontrol token username={user} "
            "lifespan=31536000` makes a token.",
            retry=True,
        )
    return faults.DatabaseDownError(
        f"slurmdbd behind {address}, or its database, is down; slurmctld answers and takes the token of {user}. "
        "Check them with `systemctl status slurmdbd mariadb`.",
        retry=True,
    )
