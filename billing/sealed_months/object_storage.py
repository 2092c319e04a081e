"""The bucket that has the files of sealed months, where one is set: the directory is a cache of it then.

An object is named after its SHA-256, so that no file is ever written over another one, and a database finds those that
it has sealed, whatever was sealed since.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO, Any, NamedTuple

from django.conf import settings

from billing.models import SealedFile
from billing.sealed_months import folder
from billing.sealed_months.errors import SealError
from portal.excerpt import excerpt

PIECE = 1 << 20  # bytes
CONNECT, READ = 3, 10  # seconds for an answer to begin, and to go on
ATTEMPTS = 2  # times that a question is asked
STALE = 3600  # seconds without a byte, after which whoever was fetching a file was killed
FETCHED = ".fetched."
_MAKING = Lock()
"""Two threads may use a client, but not make one."""


class Content(NamedTuple):
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is asked of the store raises SealError where it is away or refuses, in the client's words."""

    address: str  # as it is set
    name: str
    prefix: str  # of every key; empty, or with a slash at its end
    client: Any

    def key(self, file: SealedFile) -> str:
        return f"{self.prefix}{name(file)}"

    def content(self, file: SealedFile) -> Content | None:
        """What the store says that it has of a file; None where it has none.

        Of an object that was brought back without the checksum, or in parts, it is computed from all of it.
        """
        try:
            with self._asking() as client:
                answer = client.head_object(Bucket=self.name, Key=self.key(file), ChecksumMode="ENABLED")
            checksum = answer.get("ChecksumSHA256", "")
            if checksum and "-" not in checksum:
                return Content(answer["ContentLength"], b64decode(checksum).hex())
            return self.read(file, None)
        except _MissingError:
            return None

    def read(self, file: SealedFile, stream: IO[bytes] | None) -> Content:
        """Raises _MissingError."""
        digest, size = hashlib.sha256(), 0
        with self._asking() as client:
            answer = client.get_object(Bucket=self.name, Key=self.key(file))
            with closing(answer["Body"]) as body:
                for piece in body.iter_chunks(PIECE):
                    digest.update(piece)
                    size += len(piece)
                    if stream is not None:
                        stream.write(piece)
        return Content(size, digest.hexdigest())

    def write(self, file: SealedFile, path: Path) -> None:
        checksum = b64encode(bytes.fromhex(file.sha256)).decode()
        with self._asking() as client, path.open("rb") as stream:
            client.put_object(Bucket=self.name, Key=self.key(file), Body=stream, ChecksumSHA256=checksum)

    def sizes(self, month: date | None = None) -> dict[str, int]:
        """In bytes, of all objects of a month, or of all months, by name."""
        prefix = f"{self.prefix}{month:%Y-%m}/" if month else self.prefix
        with self._asking() as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
            return {
                item["Key"].removeprefix(self.prefix): item["Size"]
                for page in pages
                for item in page.get("Contents", ())
            }

    def delete(self, name: str) -> None:
        with self._asking() as client:
            client.delete_object(Bucket=self.name, Key=f"{self.prefix}{name}")

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield self.client
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == 404 and error.response["Error"]["Code"] != "NoSuchBucket":
                raise _MissingError from error
            raise SealError("storage", store=self.address, reason=excerpt(error)) from error
        except BotoCoreError as error:
            raise SealError("storage", store=self.address, reason=excerpt(error)) from error


class _MissingError(Exception):
    """The store has no object of that name."""


def is_set() -> bool:
    return bool(settings.CLUSTERTAB_SEALED_MONTHS_BUCKET)


def bucket() -> Bucket | None:
    """The one that is set; None where the directory has the files alone."""
    if not is_set():
        return None
    address = settings.CLUSTERTAB_SEALED_MONTHS_BUCKET
    from botocore.exceptions import BotoCoreError  # 20 MiB, which a process without a bucket does without

    try:
        with _MAKING:
            return _bucket(address, settings.CLUSTERTAB_SEALED_MONTHS_ENDPOINT)
    except BotoCoreError as error:
        raise SealError("storage", store=address, reason=excerpt(error)) from error


@cache
def _bucket(address: str, endpoint: str) -> Bucket:
    import botocore.session
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT,
        read_timeout=READ,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        # What is compatible with S3 may have neither names of hosts for buckets nor newer checksums.
        s3={"addressing_style": "path"} if endpoint else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = botocore.session.Session().create_client("s3", endpoint_url=endpoint or None, config=config)
    name, _, prefix = address.removeprefix("s3://").partition("/")
    return Bucket(address, name, f"{prefix}/" if prefix else "", client)


def name(file: SealedFile) -> str:
    """What the file is called behind the prefix."""
    path = PurePosixPath(file.path)
    return f"{path.parent}/{path.stem}.{file.sha256}{path.suffix}"


def store(files: Collection[SealedFile], directory: Path) -> None:
    """Have the bucket hold files that are in the directory of their month, each as the store itself says then.

    Killed, or called again, the same: what is there is not sent again. Raises SealError.
    """
    if (place := bucket()) is not None:
        for file in files:
            if _damage(place, file):
                place.write(file, directory / PurePosixPath(file.path).relative_to(f"{file.month}"))
                if damage := _damage(place, file):
                    raise SealError("stored-differs", place=damage)


def damages(files: Iterable[SealedFile], *, mend: bool = False) -> Iterator[str]:
    """What is wrong with each object, as the store says. To `mend` is to send what it lacks anew from the directory."""
    if (place := bucket()) is not None:
        for file in files:
            damage = _damage(place, file)
            if (
                damage
                and mend
                and folder.damage(folder.directory(), file) is None
                and place.content(file) is None
            ):
                place.write(file, folder.directory() / file.path)
                damage = _damage(place, file)
            if damage:
                yield damage


def fetch(directory: Path, file: SealedFile) -> str | None:
    """Have the directory hold a file as it was sealed; what is wrong with the object where it does not then.

    It gets its name once it is whole, so that any process may be killed, and two may fetch it at once.
    """
    place = bucket()
    if place is None:
        return None
    try:
        target = directory / file.path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=FETCHED, dir=directory)
        fetched = Path(name)
        try:
            _remove_stale(directory, fetched)
            with os.fdopen(number, "wb") as stream:
                try:
                    content: Content | None = place.read(file, stream)
                except _MissingError:
                    content = None
            if (damage := _differs(place, file, content)) is None:
                fetched.replace(target)
            return damage
        finally:
            fetched.unlink(missing_ok=True)
    except OSError as error:
        raise SealError("unwritable", month=f"{file.month}", reason=str(error)) from error


def sizes() -> dict[str, int] | None:
    """In bytes, of all objects of sealed months, by name; None where the directory has the files alone."""
    place = bucket()
    return None if place is None else place.sizes()


def disposable(month: date, digests: Collection[str]) -> list[str]:
    """The names of objects of a month whose SHA-256 is among `digests`."""
    place = bucket()
    names = place.sizes(month) if place is not None else ()
    return [name for name in names if PurePosixPath(name).stem.rpartition(".")[2] in digests]


def remove(month: date, digests: Collection[str]) -> None:
    """Delete these. Others stay under their names: another database, or a backup of this one, may need them."""
    if (place := bucket()) is not None:
        for one in disposable(month, digests):
            place.delete(one)


def _remove_stale(directory: Path, fetched: Path) -> None:
    """What processes were fetching that were killed."""
    now = fetched.stat().st_mtime
    for path in directory.glob(f"{FETCHED}*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < now - STALE:
                path.unlink()


def _damage(place: Bucket, file: SealedFile) -> str | None:
    return _differs(place, file, place.content(file))


def _differs(place: Bucket, file: SealedFile, content: Content | None) -> str | None:
    if content is None:
        return f"{file.path} is missing in {place.address}"
    if content.bytes != file.bytes:
        return f"{file.path} has {content.bytes:,} of {file.bytes:,} bytes in {place.address}"
    if content.sha256 != file.sha256:
        return f"{file.path} was changed in {place.address}: its SHA-256 is another one"
    return None
