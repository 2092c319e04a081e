"""Reading as one tenant: beneath the filters of the code, the database shows no other tenant's row."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import NotSupportedError, connection, transaction

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


@contextmanager
def asking_scope(tenant: Tenant) -> Iterator[None]:
    """As `tenant_scope`, for few questions: three round trips less, since there is no transaction around them.

    Each statement takes the scope in the message that carries it, and such a message is a transaction. What is not
    one message, as reading in slices or many times over, is refused.
    """
    if connection.in_atomic_block:
        with tenant_scope(tenant):
            yield
        return
    taken = _TAKE % ("'clustertab_portal'", f"'{tenant.pk:d}'") + ";"

    def scoped(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        cursor = context["cursor"]
        if many or getattr(cursor, "name", None):
            raise NotSupportedError("What is asked so needs a transaction: tenant_scope.")
        answer = execute(taken + sql, params, many, context)
        cursor.set_result(1)
        return answer

    with connection.execute_wrapper(scoped):
        yield


def stream_in_scope(tenant: Tenant, pieces: Iterable[T]) -> Generator[T, None, None]:
    """The pieces of an answer that is sent after its view has returned, each made inside the scope."""
    with tenant_scope(tenant):
        yield from pieces
