"""Our own files, under names that change with their content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from whitenoise.storage import CompressedManifestStaticFilesStorage  # type: ignore[import-untyped]


class Files(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # its base has no type hints
    """Remembers the addresses: the names are read once, and a page asks for a few dozen of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.addresses: dict[str, str] = {}

    def url(self, name: str, force: bool = False) -> str:
        if settings.DEBUG or force:
            return str(super().url(name, force))
        address = self.addresses.get(name)
        if address is None:
            address = self.addresses[name] = str(super().url(name))
        return address

    def post_process(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        self.addresses.clear()
        yield from super().post_process(*args, **kwargs)
        self.addresses.clear()
