"""moto's server as a bucket of an S3-compatible store on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import botocore.session
import httpx

from tests.ports import a_free_port

BUCKET = "s3://tab/months"
PATIENCE = 60  # seconds for the server to start


class Store:
    """What the operator of the store sees and does: objects by their keys."""

    def __init__(self, url: str) -> None:
        self.url = url
        session = botocore.session.Session()
        session.set_credentials("operator", "of-the-store")
        self.client: Any = session.create_client("s3", region_name="us-east-1", endpoint_url=url)

    def empty(self) -> None:
        httpx.post(f"{self.url}/moto-api/reset").raise_for_status()
        self.client.create_bucket(Bucket="tab")

    def keys(self) -> list[str]:
        listed = self.client.list_objects_v2(Bucket="tab").get("Contents", ())
        return sorted(item["Key"] for item in listed)

    def key(self, start: str) -> str:
        """That of the object whose key begins so behind the prefix."""
        (key,) = (key for key in self.keys() if key.startswith(f"months/{start}"))
        return key

    def read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket="tab", Key=key)["Body"].read())

    def write(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket="tab", Key=key, Body=content)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket="tab", Key=key)


@contextmanager
def a_store() -> Iterator[Store]:
    port = a_free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", f"{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(PATIENCE * 10):
            try:
                httpx.get(f"{url}/moto-api/")
                break
            except httpx.TransportError:
                assert server.poll() is None, "moto's server has ended"
                time.sleep(0.1)
        yield Store(url)
    finally:
        server.kill()
        server.wait()
