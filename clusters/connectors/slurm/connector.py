"""Usage of one Slurm cluster over slurmrestd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusters.connectors.base import Connected, ConnectorError, Reading
from clusters.connectors.mig import OwnShares
from clusters.connectors.slurm import faults
from clusters.connectors.slurm.access import without_slurmdbd
from clusters.connectors.slurm.rest import SlurmRest
from clusters.connectors.slurm.usage_fetch import UsageFetch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from clusters.connectors.base import Row
    from clusters.connectors.http import Endpoint
    from clusters.connectors.slurm.login import SlurmLogin


class SlurmConnector(Connected):
    """A `Connector`. `cluster` is Slurm's own name of it, "" for whichever slurmrestd answers for.

    `clock` gives epoch seconds. After use, `api` is the version that was spoken ("v0.0.42") and `release` what
    Slurm calls itself ("24.11.3"), "" where it did not say.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        login: SlurmLogin,
        cluster: str,
        clock: Callable[[], int],
        shares: OwnShares = (),
    ) -> None:
        self.rest = SlurmRest(endpoint, login, clock=clock)
        self.reading = Reading()
        self.api = ""
        self.release = ""
        self._cluster = cluster
        self._clock = clock
        self._shares = shares

    def usage(self, *, since: int, until: int, open_keys: Collection[str]) -> Iterator[Row]:
        """As the protocol says. One request at a time; of the rows, one window is held in memory.

        Running rows come last, seen until the second that slurmdbd gave and slurmctld confirmed. Runs that
        slurmctld does not know are given without moving on and named in `reading.missing`.
        """
        self.reading = Reading()
        fetch = UsageFetch(
            self.rest, self.reading, cluster=self._cluster, clock=self._clock, shares=self._shares
        )
        try:
            yield from fetch.rows(since=since, until=until, open_keys=open_keys)
        except faults.DatabaseDownError as error:
            self.reading.complete_through = None
            raise without_slurmdbd(self.rest) from error
        except ConnectorError:
            self.reading.complete_through = None
            raise
        finally:
            self._remember()
            self.rest.close()

    def close(self) -> None:
        self.rest.close()

    def _remember(self) -> None:
        api = self.rest.discovered
        if api is not None:
            self.api, self.release = api.version, api.release
