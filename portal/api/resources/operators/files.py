"""Accounting files of up to 1 GiB, streamed: no process holds more than a piece of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.http import HttpResponse
from django.http.request import UnreadablePostError

from billing.rating import file_imports
from billing.rating.file_imports import LARGEST, FileRefusedError
from clusters.models import Cluster, FileFormat
from portal.api import parameters
from portal.api.answers import as_json
from portal.api.problems import ProblemError, bad_request
from portal.api.resources.operators.endpoint import WritingEndpoint
from portal.api.resources.operators.operations import OperationSerializer, of_file
from portal.core.outbox import outbox

PIECE = 1 << 20  # bytes
BINARY = "application/octet-stream"


class ClusterFile(WritingEndpoint):
    """Send an accounting file, plain or gzip, as `application/octet-stream`: an operation, which a worker imports.

    The same content under the same name again is the same operation; one that failed is tried again.
    """

    write_scope = "imports:write"
    serializer = OperationSerializer
    binary = True
    put_success = 202
    write_parameters = (
        parameters.choice(
            "format", [*FileFormat.values], "What printed it.", many=False, default=FileFormat.SACCT.value
        ),
        parameters.moment("as_of", "Up to which the source had looked; as the file proves unless said."),
    )
    refusals = (FileRefusedError,)

    def put(self, request: Any, name: str, file: str) -> HttpResponse:
        size = size_of(request, file)
        row = file_imports.store_file(
            cluster=Cluster.objects.get(name=name),
            name=file,
            kind=FileFormat(self.query["format"]),
            pieces=pieces_of(request, size),
            as_of=self.query["as_of"],
            by=self.client.name,
            moment=self.moment.replace(microsecond=0),
        )
        outbox.add("billing.tasks.files_due")
        return as_json(of_file(row), status=202)


def size_of(request: Any, file: str) -> int:
    """Bytes of the file that comes. Raises ProblemError where it or its name is none that is taken."""
    if not request.content_type.startswith(BINARY):
        raise ProblemError(415, "unsupported-media-type", "Send the file", f"Send the file as {BINARY}.")
    if len(file.encode()) > 200 or not file.isprintable() or file in {".", ".."}:
        raise bad_request("A file's name has 1 to 200 printable bytes.")
    size = request.META.get("CONTENT_LENGTH") or ""
    if not size.isdecimal():
        raise bad_request("Send Content-Length: the size of the file in bytes.")
    if int(size) > LARGEST:
        raise ProblemError(413, "too-large", "The file is too large", f"Send at most {LARGEST} bytes.")
    return int(size)


def pieces_of(request: Any, size: int) -> Iterator[bytes]:
    """The file, a piece at a time. Raises ProblemError where it breaks off."""
    rest = size
    try:
        while rest > 0 and (piece := request.read(min(PIECE, rest))):
            rest -= len(piece)
            yield piece
    except UnreadablePostError:
        pass
    if rest:
        raise bad_request("The file broke off before its end: send it again.")
