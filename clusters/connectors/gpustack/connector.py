"""Usage of one GPUStack: hours of instances and volumes, days of tokens, as sums of declared meters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from clusters.connectors.base import Connected, ConnectorError, Reading, Row, Secret
from clusters.connectors.gpustack.client import GPU_INSTANCES, STORAGE, TOKENS, GpuStackClient
from clusters.connectors.gpustack.options import GpuStackOptions
from clusters.connectors.gpustack.removed import PREFIX, Listing
from clusters.connectors.gpustack.rows import RowReader
from clusters.connectors.http import Endpoint
from clusters.connectors.sums import MeterUnits, StoredSums, none_stored

SETTLE = 1200  # seconds after an hour or a day: GPUStack seals an hour after 900
HOUR = 3600
FARTHEST = timedelta(hours=14)  # that a zone is from UTC
TOKENS_BY = ("organization", "user", "api_key", "route")


class GpuStackConnector(Connected):
    """A `Connector`. `zone` is that of GPUStack's calendar, since its tokens are told by the day; `clock` gives epoch
    seconds. What `stored` has and GPUStack no longer lists is given as sums of 0."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        key: Secret,
        options: GpuStackOptions,
        zone: ZoneInfo,
        clock: Callable[[], int],
        meters: MeterUnits,
        stored: StoredSums = none_stored,
    ) -> None:
        self.client = GpuStackClient(endpoint, key, clock=clock)
        self.reading = Reading()
        self.api = "v2"
        self._options = options
        self._zone = zone
        self._clock = clock
        self._meters = meters
        self._stored = stored

    def usage(self, *, since: int, until: int, open_keys: Collection[str]) -> Iterator[Row]:  # noqa: ARG002 - no sum is open
        """As the protocol says: whole hours, and whole days of tokens that touch them, each once it has settled."""
        self.reading = Reading()
        try:
            yield from self._rows(since - since % HOUR, until)
        except ConnectorError:
            self.reading.complete_through = None
            raise
        finally:
            self.client.close()

    def close(self) -> None:
        self.client.close()

    def _rows(self, begin: int, until: int) -> Iterator[Row]:
        settled = self._clock() - SETTLE
        end = min(until, settled)
        end = max(end - end % HOUR, begin)
        hours = _moment(begin), _moment(end)
        days = _days(hours[0] - FARTHEST, hours[1] + FARTHEST) if end > begin else []
        complete = end
        if self._options.tokens:
            complete = yield from self._tokens(begin, end, settled)
        for path, groups, meters in (
            (GPU_INSTANCES, ("instance_type", "instance"), {self._options.gpu, self._options.cpu}),
            (STORAGE, ("volume",), {self._options.storage}),
        ):
            if not meters - {""}:
                continue
            self.client.refuse_part(path, hours[0].date())
            self.reading.clocks = self.client.clocks
            reader, listing = self._reader(), Listing(groups[-1], meters, self.reading)
            for day in days:
                items = self.client.items(path, day, *groups)
                rows = list(reader.hours(groups[-1], items, begin=hours[0], end=hours[1]))
                self._refuse_zone(reader)
                yield from listing.add(rows)
            yield from self._removed(reader, listing, begin, end)
        self.reading.complete_through = complete

    def _reader(self) -> RowReader:
        return RowReader(self._options, self._meters)

    def _removed(self, reader: RowReader, listing: Listing, begin: int, end: int) -> Iterator[Row]:
        """Sums of [begin, end) that are not listed now that every answer of this kind was whole."""
        self.reading.steps += reader.steps
        stored = self._stored(PREFIX, begin, end) if end > begin else ()
        return listing.removed(stored, first=reader.first, unread=reader.unread)

    def _tokens(self, begin: int, end: int, settled: int) -> Generator[Row, None, int]:
        """Rows of the days that touch [begin, end]; returns the second through which all is read."""
        reader, listing = self._reader(), Listing("tokens", {self._options.tokens}, self.reading)
        days = _days(_moment(begin).astimezone(self._zone), _moment(end).astimezone(self._zone))
        first = int(self._midnight(days[0]).timestamp())
        last = first
        for day in days:
            interval = self._midnight(day), self._midnight(day + timedelta(days=1))
            if interval[1] > _moment(settled):
                yield from self._removed(reader, listing, first, last)
                return min(end, max(begin, last))
            items = self.client.items(TOKENS, day, *TOKENS_BY)
            self.reading.clocks = self.client.clocks
            yield from listing.add(list(reader.tokens(items, day, interval)))
            last = int(interval[1].timestamp())
        yield from self._removed(reader, listing, first, last)
        return end

    def _midnight(self, day: date) -> datetime:
        return datetime.combine(day, time(), self._zone).astimezone(UTC)

    def _refuse_zone(self, reader: RowReader) -> None:
        """GPUStack labels every hour with its present offset, in summer and winter."""
        ours = _moment(self._clock()).astimezone(self._zone).utcoffset()
        wrong = [offset for offset in reader.offsets if offset != ours]
        if self._options.tokens and wrong and ours is not None:
            raise ConnectorError("gpustack-zone", retry=True, theirs=_signed(wrong[0]), ours=_signed(ours))


def _days(first: datetime, last: datetime) -> list[date]:
    """The calendar days from the one moment to the other."""
    return [first.date() + timedelta(days=number) for number in range((last.date() - first.date()).days + 1)]


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def _signed(offset: timedelta) -> str:
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
