"""Reading as one tenant: beneath the filters of the code, the database shows no other tenant's row."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from django.db import connection, transaction

if TYPE_CHECKING:
    from portal.tenants.models import Tenant

T = TypeVar("T")

_TAKE = "SELECT set_config('role', %s, true), set_config('app.tenant_id', %s, true)"


@contextmanager
def tenant_scope(tenant: Tenant) -> Iterator[None]:
    """A transaction in which only rows of `tenant` can be read, and nothing can be written.

    Both settings end with the transaction; inside an outer one they are taken back at the end of
    the block, and a failure takes them back with the savepoint.
    """
    inside = connection.in_atomic_block
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_TAKE, ["clustertab_portal", str(tenant.pk)])
        yield
        if inside:
            with connection.cursor() as cursor:
                cursor.execute(_TAKE, ["none", ""])


def stream_in_scope(tenant: Tenant, pieces: Iterable[T]) -> Generator[T, None, None]:
    """The pieces of an answer that is sent after its view has returned, each made inside the scope."""
    with tenant_scope(tenant):
        yield from pieces
