"""Sets PDFs and e-invoices in processes beside this one: what a typesetter remembers is not ours to hold.

A process stays for the next document and ends by itself when there is none. At most two work at once.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from billing.documents import typesetter
from billing.documents.messages import SENTENCES
from portal.errors import CodedError

PATIENCE = 120  # seconds for one document; 3,000 lines take one or two
AT_ONCE = 2

_working = threading.BoundedSemaphore(AT_ONCE)
idle: list[subprocess.Popen[bytes]] = []  # those that wait for their next document


class TypesettingError(CodedError):
    """It is not set: one sentence says why."""

    sentences = SENTENCES


class NoAnswerError(TypesettingError):
    """The process ended in the middle of it, which says nothing of the document: the next time it may be set."""


def typeset(
    document: dict[str, Any],
    *,
    created: date,
    template: str = "invoice",
    attached: str = "",
    name: str = "factur-x.xml",
) -> bytes:
    """The PDF of what the template takes, with an e-invoice attached under that name where there is one.

    Raises TypesettingError.
    """
    payload = {
        "document": document,
        "template": template,
        "created": created.isoformat(),
        "attached": attached,
        "name": name,
    }
    return _answered(payload, noun="pdf")


def write_einvoice(terms: dict[str, Any]) -> bytes:
    """The XML of these business terms of EN 16931, valid by its schema. Raises TypesettingError, and of that
    NoAnswerError where nothing is wrong with them."""
    return _answered({"einvoice": terms}, noun="einvoice")


def _answered(payload: dict[str, Any], *, noun: str) -> bytes:
    request = json.dumps(payload).encode()
    with _working:
        answer = _ask_idle_process(request) or _asked(_start(), request)
    if answer is None:
        raise NoAnswerError("typesetter-ended")
    if not answer.startswith(typesetter.SET):
        why = (answer[1:].decode(errors="replace").splitlines() or ["no reason given"])[0]
        raise TypesettingError(f"{noun}-not-set", reason=why)
    return answer[1:]


def close() -> None:
    """End the processes that wait."""
    while idle:
        _end(idle.pop())


def _ask_idle_process(request: bytes) -> bytes | None:
    """None where none waits, or where the one that did has ended since."""
    try:
        process = idle.pop()
    except IndexError:
        return None
    return _asked(process, request)


def _asked(process: subprocess.Popen[bytes], request: bytes) -> bytes | None:
    """Its answer, after which it waits again; None where it has ended."""
    if process.stdin is None or process.stdout is None:
        raise TypeError("it is started with both pipes")
    watch = threading.Timer(PATIENCE, process.kill)
    watch.daemon = True
    watch.start()
    answer = None
    try:
        typesetter.send(process.stdin, request)
        answer = typesetter.receive(process.stdout)
    except BrokenPipeError:
        pass  # it had ended while it waited: without an answer, the caller starts another one
    finally:
        watch.cancel()
        if answer is None:
            _end(process)
    if answer is not None:
        idle.append(process)
    return answer


def _start() -> subprocess.Popen[bytes]:
    # Isolated: beside it lie modules that are called like the standard library's. One arena, since the
    # memory that threads of a typesetter give back to arenas of their own does not return.
    return subprocess.Popen(
        [sys.executable, "-I", str(Path(typesetter.__file__))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):  # what it was not told any more
                stream.close()


atexit.register(close)
os.register_at_fork(after_in_child=idle.clear)  # they answer the parent
