"""What every source of usage speaks: plain facts, one error, no Django.

A connector turns what a scheduler recorded into `UsageFact`s. It knows no tenants, no money and
no database, so it can be tested with a file and a clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from clusters.connectors import messages, row_messages
from portal.errors import CodedError, compose

if TYPE_CHECKING:
    from clusters.connectors.clocks import Clocks

State = str
"""The scheduler's own word for how a run stands or ended, without its reason: `COMPLETED`.

Nothing in the ledger is decided by it; plans may price by it."""

UNKNOWN_OUTCOME: State = "Unknown"
"""Of a run that ended, and of which nobody says how. No price can select it."""


class ConnectorError(CodedError):
    """A source could not be read. `retry` answers the caller's one question."""

    sentences = messages.SENTENCES

    def __init__(self, code: str, *, retry: bool, **values: object) -> None:
        super().__init__(code, **values)
        self.retry = retry


class UnreadableError(CodedError, ValueError):
    """A row that cannot be true or cannot be read: its code and values are those of its `BadRow`."""

    sentences = row_messages.SENTENCES


class UsageFact(msgspec.Struct, frozen=True, gc=False):
    """One workload that held one fixed shape of resources for one interval.

    They are made by the million. So it is no dataclass, which takes five times as long to make, and is left out of
    the collector's rounds: it holds no fact that could hold it. It takes its fields in this order as well as by name,
    which takes three times as long.

    Which source fills which column is a table in docs/reference/sources.md, held by recorded answers; the others
    come by files alone, or not at all.

    All instants are UTC epoch seconds; `started` and `ended` are half-open `[started, ended)`.
    `started is None`: still waiting. `ended is None`: still running (or waiting).
    """

    source_key: (
        str  # unique for ever within the cluster, e.g. "100001@1504521041" (job id raw @ submit epoch)
    )
    account: str  # the scheduler's name for who used it; "" is an account like any other
    user: str = ""
    job_id: str = ""  # as people write it: "8012944_24093"
    name: str = ""
    queue: str = ""  # Slurm partition, Kubernetes queue
    qos: str = ""  # Slurm's, or a pod's QoS class
    priority_class: str = ""  # of a pod
    gpus: int = 0  # whole GPUs, or slices of `gpu_share` each
    gpu_model: str = ""  # "a100"; "" where the source does not say
    mig_profile: str = ""  # "1g.5gb"
    gpu_share: tuple[int, int] = (1, 1)  # what one of `gpus` is of a whole GPU: (1, 7)
    cpu_milli: int = 0  # thousandths of a core
    memory_mib: int = 0
    nodes: int = 0
    node_list: str = ""
    requested: str = ""  # what was asked for, as the source prints it
    time_limit: int | None = None  # seconds; None: unlimited or unknown
    submitted: int | None = None
    eligible: int | None = None
    started: int | None = None
    ended: int | None = None
    seen_until: int | None = None  # while running: the second up to which the source proves that it was held
    suspended: int = 0  # seconds within [started, ended) in which nothing was held; no position is known
    state: State = ""
    exit_code: str = ""
    gpu_memory_mib: int = 0  # memory of the devices that it held, of all of them together
    billing: int = 0  # Slurm's billing TRES: a weight that its administrators gave to what was held
    meter: str = ""  # of a sum: the declared meter; its dimensions are the `gpu_model`, its unit's parts in `gpu_share`
    quantity: int | None = None  # of a sum: how many of those parts
    energy: int | None = None  # joules of the whole run, as the source prints them; None: it says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that cannot be true or cannot be read: kept with its reason, never billed, never dropped."""

    code: str  # stable short name of the reason: "truncated", "end-before-start", …; `row_messages` has its sentence
    values: Mapping[str, object] = field(default_factory=dict)  # texts and whole numbers
    raw: str  # the row as it came; bytes that are not UTF-8 as \\xNN
    line: int | None = None  # where it began in the file, from 1
    source_key: str = ""  # where it could be told

    @property
    def reason(self) -> str:
        """The sentence in English: what is wrong and what to do."""
        return compose(row_messages.SENTENCES, self.code, self.values)


@dataclass(frozen=True, slots=True)
class Rejection:
    """What a program sent that cannot be taken, and a JSON pointer to what is wrong in it."""

    pointer: str
    row: BadRow


class BusySource(StrEnum):
    """Where a run's utilisation was taken from."""

    DEVICE = "device"  # the devices that it held, told by the pod's or job's own labels
    NODE = "node"  # this and those below are wider averages, by the operator's choice alone
    MODEL = "model"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class BusyHour:
    """What telemetry says of one run in one hour of UTC. Told again, the newest word replaces the one before.

    Device-seconds: one of `UsageFact.gpus`, also where that is a slice, counts as one device.
    """

    source_key: str
    hour: int  # epoch second at which the hour begins, a multiple of 3600
    busy: Decimal  # device-seconds that its devices worked; at most nine decimals
    covered: int  # device-seconds of the run in that hour that telemetry covered; at most what it held
    source: BusySource
    metric: str  # DCGM_FI_PROF_GR_ENGINE_ACTIVE


@dataclass(frozen=True, slots=True)
class EnergyHour:
    """What the devices of one run drew in one hour of UTC, as far as it was measured. Told again, the newest counts."""

    run: UsageFact
    hour: int  # epoch second at which the hour begins, a multiple of 3600
    joules: int

    @property
    def source_key(self) -> str:
        return self.run.source_key


@dataclass(frozen=True, slots=True)
class IncompleteHour:
    """An hour, or the part of it that was read, in which a source did not look at its cluster all along."""

    begins: int  # epoch second
    read: int  # seconds
    covered: int  # seconds of those


@dataclass(slots=True, kw_only=True)
class Reading:
    """What one read of a source gave beside its rows; filled while the rows are consumed."""

    proves_until: int | None = (
        None  # epoch second up to which the rows themselves prove that the source had looked
    )
    steps: int = 0  # job-step rows passed over: their time is inside their job's
    notes: list[str] = field(default_factory=list)  # sentences for the operator
    complete_through: int | None = (
        None  # live sources: the epoch second before which all was read; None: nothing proved
    )
    nodes: list[NodeSeen] | None = (
        None  # live sources: every node with GPUs at the end of the pull; None: not told
    )
    missing: list[str] = field(
        default_factory=list
    )  # of the open keys asked after, those the source has no row of
    unasked: list[str] = field(
        default_factory=list
    )  # of them, those that this pull did not come to: it says nothing of them
    incomplete: list[IncompleteHour] = field(
        default_factory=list
    )  # sources that look by themselves: hours of what was read that they did not see all of, in order
    clocks: Clocks | None = (
        None  # live sources: both clocks as the pull began, known before its first row; None: not told
    )


class NodeState(StrEnum):
    """Whether a node's GPUs can be given to jobs: `up`, `drained` (an operator keeps it empty) or `down`."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """The GPUs of one model in one node, as a pull saw them."""

    name: str
    gpu_model: str  # "" where the source does not say
    gpus: int
    state: NodeState


class Secret:
    """A text that no log, page or traceback may show: only `reveal()` gives it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret(•••)" if self._value else "Secret(empty)"

    __str__ = __repr__


class Connected(ABC):
    """Something that holds connections; as a context, it closes them at its end."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close what is kept open. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Row = UsageFact | BadRow | BusyHour | EnergyHour
"""A `BusyHour` comes any time after a fact of its key was given, in this pull or an earlier one."""


class Connector(Protocol):
    """A live source. One method; how it is reached and as whom is given to its constructor."""

    reading: Reading

    def usage(self, *, since: int, until: int, open_keys: Collection[str]) -> Iterator[Row]:
        """Every run that held or awaited resources in `[since, until)`, each at least once, newest state last.

        Instants are epoch seconds. `open_keys` are the source keys that the ledger holds as running or waiting: each
        is given anew, from wherever it lies, or named in `reading.missing`, or in `reading.unasked` where they are
        too many. `reading` is complete when the iterator ends. Raises `ConnectorError`; then nothing is proved, and
        what was given before it is true nevertheless.
        """
        ...
