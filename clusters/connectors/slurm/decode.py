"""The answers of slurmrestd as typed values: only what is read of them, in whatever form a version gives it.

A number is an int in v0.0.38 and often `{"set": …, "infinite": …, "number": …}` later; a state is one word or
a list of words; what is not there is null, "" or missing.
"""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from portal.excerpt import excerpt

NO_COUNT = 2**32 - 2
"""Slurm's NO_VAL; this and everything above it, and everything below zero, stands for "not set"."""


class Num(Struct, gc=False, frozen=True):
    set: bool = False
    infinite: bool = False
    number: int | None = None


Number = int | Num | None
Words = str | list[str] | None


class TresCount(Struct, gc=False, frozen=True):
    type: str = ""
    name: str | None = None
    count: Number = None


class TresLists(Struct, gc=False):
    """Tuples, so that what was made of one can be looked up by it: few lists differ."""

    allocated: tuple[TresCount, ...] | None = None
    requested: tuple[TresCount, ...] | None = None


class Times(Struct, gc=False):
    submission: Number = None
    eligible: Number = None
    start: Number = None
    end: Number = None
    elapsed: Number = None
    suspended: Number = None
    limit: Number = None  # minutes


class State(Struct, gc=False):
    current: Words = None


class RunningTasks(Struct, gc=False):
    tasks: Number = None


class ArrayMax(Struct, gc=False):
    running: RunningTasks | None = None


class ArrayLimits(Struct, gc=False):
    max: ArrayMax | None = None


class Array(Struct, gc=False):
    job_id: Number = None
    task_id: Number = None
    task: str | None = None  # waiting tasks: a hex mask
    limits: ArrayLimits | None = None


class Het(Struct, gc=False):
    job_id: Number = None
    job_offset: Number = None


class Signal(Struct, gc=False):
    id: Number = None


class Exit(Struct, gc=False):
    status: Words = None  # one word where the code is wrong (v0.0.38, v0.0.39), a list where it is right
    return_code: Number = None
    signal: Signal | None = None


class Required(Struct, gc=False):
    cpus: Number = msgspec.field(default=None, name="CPUs")


class Job(Struct, gc=False):
    """A row of slurmdbd: one run of a job, an array task or a het component."""

    job_id: Number = None
    cluster: str | None = None
    account: str | None = None
    user: str | None = None
    name: str | None = None
    partition: str | None = None
    qos: str | None = None
    nodes: str | None = None
    allocation_nodes: Number = None
    time: Times | None = None
    state: State | None = None
    tres: TresLists | None = None
    required: Required | None = None
    array: Array | None = None
    het: Het | None = None
    exit_code: Exit | None = None


class LiveJob(Struct, gc=False):
    """A job that slurmctld has in memory."""

    job_id: Number = None
    submit_time: Number = None
    start_time: Number = None
    job_state: Words = None


class Node(Struct, gc=False):
    name: str | None = None
    gres: str | None = None
    state: Words = None
    state_flags: Words = None


class Fault(Struct):
    error_number: int | None = None
    error: str | None = None
    description: str | None = None


class Release(Struct):
    release: str | None = None
    cluster: str | None = None


class Meta(Struct):
    old: Release | None = msgspec.field(default=None, name="Slurm")  # until v0.0.39
    new: Release | None = msgspec.field(default=None, name="slurm")

    @property
    def slurm(self) -> Release:
        return self.new or self.old or Release()


class Envelope(Struct):
    """What every answer has around its list."""

    meta: Meta | None = None
    errors: list[Fault] | None = None


class Jobs(Envelope):
    jobs: list[Job] | None = None


class PartOfJobs(Jobs):
    """Jobs of which some rows had no known shape: those, with what is wrong with them."""

    unread: list[tuple[bytes, str]] = msgspec.field(default_factory=list)


class RawJobs(Envelope):
    jobs: list[msgspec.Raw] | None = None


class Nodes(Envelope):
    nodes: list[Node] | None = None


class Statistics(Struct):
    req_time: Number = None  # slurmctld's clock as it answered


class Diagnosis(Envelope):
    statistics: Statistics | None = None


class Spec(Struct):
    """The OpenAPI description."""

    paths: dict[str, msgspec.Raw] | None = None


E = TypeVar("E")


class NotJsonError(ValueError):
    """The body is no JSON, or breaks off."""


class OtherShapeError(ValueError):
    """The body is JSON, and something in it is not of the kind that it is in every known version."""


class Reader(Generic[E]):
    """Bytes → one typed value. Bytes that are not UTF-8 read as U+FFFD; control characters stay."""

    def __init__(self, kind: type[E]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)

    def read(self, body: bytes) -> E:
        """Raises `NotJsonError` or `OtherShapeError`."""
        for attempt in (self._plainly, self._mended, self._loosely):
            try:
                return attempt(body)
            except msgspec.ValidationError as error:
                raise OtherShapeError(excerpt(error)) from None
            except UnicodeEncodeError:  # half of a surrogate pair where a name of ours belongs
                raise OtherShapeError("half of a surrogate pair") from None
            except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
                pass
        raise NotJsonError("The body is no JSON, or it breaks off.")

    def _plainly(self, body: bytes) -> E:
        return self._decoder.decode(body)

    def _mended(self, body: bytes) -> E:
        return self._decoder.decode(body.decode("utf-8", "replace"))

    def _loosely(self, body: bytes) -> E:
        """For what the quick decoder refuses in any text: raw control characters, halves of surrogate pairs."""
        return msgspec.convert(loose(body), self._kind)


class JobsReader(Reader[Jobs]):
    """One row of another shape does not take the others with it: it is put aside."""

    def __init__(self) -> None:
        super().__init__(Jobs)

    def read(self, body: bytes) -> Jobs:
        try:
            return super().read(body)
        except OtherShapeError:
            pieces = raw_jobs.read(body)
        if pieces.jobs is None:
            return Jobs(meta=pieces.meta, errors=pieces.errors)
        good: list[Job] = []
        result = PartOfJobs(meta=pieces.meta, errors=pieces.errors, jobs=good)
        for piece in pieces.jobs:
            try:
                good.append(one_job.read(bytes(piece)))
            except (OtherShapeError, NotJsonError) as error:
                result.unread.append((bytes(piece), str(error)))
        return result


def loose(body: bytes) -> Any:
    """JSON of any shape, forgiving raw control characters, lone surrogates and bytes that are not UTF-8."""
    try:
        return json.loads(body.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        raise NotJsonError("The body is no JSON, or it breaks off.") from None


def whole(number: Number) -> int | None:
    """The number where it is set: neither null, unset, infinite, negative, nor one of Slurm's sentinels."""
    if number.__class__ is not int:
        if not isinstance(number, Num) or not number.set or number.infinite or number.number is None:
            return None
        number = number.number
    return number if 0 <= number < NO_COUNT else None


def joules(number: Number) -> int | None:
    """An amount of energy: it may be larger than what `whole` takes for a number. Unset it is null, -2 or 2^64 - 2."""
    if isinstance(number, Num):
        number = number.number if number.set and not number.infinite else None
    return number if number is not None and number >= 0 else None


def plain_number(value: Any, *, below: int = NO_COUNT) -> int | None:
    """`whole` of an answer that was not read into types, for counts of any size."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return value if isinstance(value, int) and 0 <= value < below else None


def instant(number: Number) -> int | None:
    """An epoch second; 0 and the sentinels are "not set"."""
    return whole(number) or None


def words(state: Words) -> list[str]:
    """The words of a state, base state first, in capitals."""
    if not state:
        return []
    texts = [state] if isinstance(state, str) else state
    return [word.upper() for text in texts for word in text.replace("+", " ").split()]


raw_jobs: Reader[RawJobs] = Reader(RawJobs)
jobs = JobsReader()
nodes: Reader[Nodes] = Reader(Nodes)
diagnosis: Reader[Diagnosis] = Reader(Diagnosis)
envelopes: Reader[Envelope] = Reader(Envelope)
specs: Reader[Spec] = Reader(Spec)
one_job: Reader[Job] = Reader(Job)
