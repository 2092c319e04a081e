"""What a PBS or Torque job held: from `exec_vnode`, `exec_host` or what it asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clusters.connectors.accounting.log import gpu_count, whole_number
from clusters.connectors.base import UnreadableError
from clusters.connectors.mig import GpuType, OwnShares, gpu_type
from portal.excerpt import quoted

_GPUS = ("ngpus", "gpus", "gpu", "ngpu", "naccelerators")
_MODELS = ("gpu_type", "gpu_model", "gputype", "gpumodel", "accelerator_model")
_SIZE = re.compile(r"(\d{1,18})([kmgtp]?)([bw]?)", re.ASCII | re.IGNORECASE)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_WORD = 8  # bytes, as PBS counts a word on 64-bit hosts


@dataclass(frozen=True, slots=True)
class Held:
    """What one run held. `gpus` counts things of `gpu` each."""

    cpus: int
    memory_mib: int
    nodes: tuple[str, ...]
    node_count: int
    gpus: int
    gpu: GpuType
    several_models: bool


def held(values: Mapping[str, str], shares: OwnShares) -> Held:
    """Raises `UnreadableError` where a number of GPUs or of what is billed cannot be read."""
    chunks = list(_chunks(values.get("exec_vnode", "")))
    slots = list(_slots(values.get("exec_host", "")))
    spec = list(_spec(values.get("Resource_List.nodes") or values.get("Resource_List.neednodes", "")))
    hosts = tuple(dict.fromkeys(host for host, _ in slots or chunks))
    asked = values.get("Resource_List.nodect", "").partition(":")[0]
    models = _models(values.get("Resource_List.select", ""))
    return Held(
        cpus=_cpus(values, chunks, slots, spec),
        memory_mib=_memory(values, chunks),
        nodes=hosts,
        node_count=len(hosts) or (int(asked) if asked.isdecimal() and len(asked) < 9 else 0),
        gpus=_gpus(values, chunks),
        gpu=gpu_type(models[0], shares) if len(models) == 1 else GpuType("", "", (1, 1)),
        several_models=len(models) > 1,
    )


def _cpus(
    values: Mapping[str, str],
    chunks: list[tuple[str, dict[str, str]]],
    slots: list[tuple[str, int]],
    spec: list[tuple[int, dict[str, str]]],
) -> int:
    cpus = sum(whole_number("ncpus", chunk["ncpus"]) for _, chunk in chunks if "ncpus" in chunk)
    if cpus or (cpus := sum(number for _, number in slots)):
        return cpus
    if spec:
        return sum(nodes * whole_number("ppn", words.get("ppn", "1")) for nodes, words in spec)
    return whole_number("Resource_List.ncpus", values.get("Resource_List.ncpus", "0"))


def _gpus(values: Mapping[str, str], chunks: list[tuple[str, dict[str, str]]]) -> int:
    """What was assigned, else what was asked for: by name, by node, or among the words of `nodect`."""
    assigned = sum(gpu_count(name, chunk[name]) for _, chunk in chunks for name in _GPUS if name in chunk)
    if assigned:
        return assigned
    if text := values.get("exec_gpus"):
        return text.count("+") + 1
    for name in _GPUS:
        if (text := values.get(f"Resource_List.{name}")) is not None:
            return gpu_count(name, text)
    for field in ("nodes", "neednodes", "nodect", "select"):
        gpus = sum(
            nodes * gpu_count(name, words[name])
            for nodes, words in _spec(values.get(f"Resource_List.{field}", ""))
            for name in _GPUS
            if name in words
        )
        if gpus:
            return gpus
    return 0


def _memory(values: Mapping[str, str], chunks: list[tuple[str, dict[str, str]]]) -> int:
    size = sum(_bytes("mem", chunk["mem"]) for _, chunk in chunks if "mem" in chunk)
    if not size and (text := values.get("Resource_List.mem")):
        size = _bytes("Resource_List.mem", text)
    return size >> 20


def _bytes(field: str, text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UnreadableError("log-field", field=field, text=quoted(text))
    size = int(match[1]) << _SHIFT[match[2].lower()]
    return size * _WORD if match[3].lower() == "w" else size


def _chunks(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """`(a:ncpus=4:ngpus=1)+(b:ncpus=4+c:ngpus=1)` → each vnode with what it gave."""
    for chunk in text.replace("(", "").replace(")", "").split("+") if text else ():
        host, *words = chunk.split(":")
        yield host, dict(word.split("=", 1) for word in words if "=" in word)


def _slots(text: str) -> Iterator[tuple[str, int]]:
    """`a/0*13+b/0-3+c/5` → each host with its slots: 13, 4 and 1."""
    for part in text.split("+") if text else ():
        host, _, slots = part.partition("/")
        number = 0
        for piece in slots.split(","):
            first, star, times = piece.partition("*")
            begin, dash, end = first.partition("-")
            if star:
                number += whole_number("exec_host", times)
            elif dash:
                number += whole_number("exec_host", end) - whole_number("exec_host", begin) + 1
            else:
                number += 1
        yield host, number


def _spec(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """`2:ppn=8:gpus=1+node7:ppn=4` → each number of nodes with what each of them gives."""
    for part in text.split("+") if text else ():
        first, *words = part.split(":")
        number = int(first) if first.isdecimal() and len(first) < 9 else 1
        yield number, dict(word.split("=", 1) for word in words if "=" in word)


def _models(select: str) -> list[str]:
    words = re.split(r"[:+]", select)
    pairs = (word.split("=", 1) for word in words if "=" in word)
    return list(dict.fromkeys(value for name, value in pairs if name in _MODELS and value))
