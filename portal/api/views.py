"""What every endpoint does: find the client, its limits and scope, read the parameters, enter the tenant's scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, ClassVar

from django.db import IntegrityError, connection, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from rest_framework.schemas.inspectors import ViewInspector
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from clusters.month_file_fetches import with_files
from portal.api import cursors, entity_tags, expansion, idempotency, limits, parameters
from portal.api.answers import as_json
from portal.api.authentication import Client, client_of
from portal.api.bodies import Body, NoBody
from portal.api.deprecation import Deprecation
from portal.api.expansion import Expansion
from portal.api.fields import RowSerializer
from portal.api.json_body import LARGEST, StrictJson
from portal.api.parameters import Parameter
from portal.api.problems import (
    ProblemError,
    as_response,
    bad_parameter,
    not_found,
    of_exception,
    refused,
)
from portal.core import locks, replica
from portal.core.audit.actor import acting_as
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, limit_queries, tenant_scope
from portal.sentences import sentence

READS = replica.READS
REPLACES = frozenset({"PUT", "PATCH", "DELETE"})
"""Of these the address names an object, which is written by one request at a time: as it was matched, it stays."""


class SchemaOnDemand:
    """An endpoint's part of the OpenAPI document. What makes it is large, and few processes are asked for it."""

    def __get__(self, view: APIView | None, owner: type[APIView]) -> ViewInspector:
        from portal.api.schema import EndpointSchema

        schema = EndpointSchema()
        schema.view = view
        return schema


class Endpoint(APIView):
    """One address. Subclasses say the `scope` it needs, its `parameters`, and what it answers."""

    authentication_classes = ()  # `client_of` does it: before limits, and without sessions
    permission_classes = ()
    parser_classes: Sequence[type[StrictJson]] = (StrictJson,)
    schema = SchemaOnDemand()

    scope: ClassVar[str] = ""
    write_scope: ClassVar[str] = ""  # of POST, PUT, PATCH and DELETE
    parameters: ClassVar[Sequence[Parameter]] = ()
    serializer: ClassVar[type[BaseSerializer[Any]]]
    request_serializer: ClassVar[type[Body] | None] = None
    lists: ClassVar[bool] = False
    expansions: ClassVar[Mapping[str, Expansion]] = {}  # `parameters` has `expand` then
    success: ClassVar[int] = 201  # of its POST
    put_success: ClassVar[int] = 200
    moving: ClassVar[frozenset[str]] = frozenset()  # fields of its object that nobody sets
    binary: ClassVar[bool] = False  # its PUT takes a file, for as long as that comes: nobody waits for it
    batch: ClassVar[tuple[str, int] | None] = (
        None  # media type and most items of an array that its POST takes
    )
    largest_body: ClassVar[int] = LARGEST
    longest_query: ClassVar[str] = "10s"
    beyond_tenant: ClassVar[bool] = False  # it reads more than the tenant's rows, and chooses them itself
    of_everybody: ClassVar[bool] = False  # of all users: not for a member who sees their own usage alone
    whole_tenant: ClassVar[bool] = False  # more than one project's: a key of a project does not reach it
    allotment: ClassVar[tuple[str, int] | None] = None  # a limit of its own: name, and how often a minute
    needs_idempotency: ClassVar[bool] = False  # of its POST: it moves money or issues documents
    acts: ClassVar[bool] = False  # it reads what pages of tenants may not: in the scope of acting
    beside: ClassVar[bool] = (
        False  # its POST calls a gateway or a scheduler: no transaction is open meanwhile
    )
    is_report: ClassVar[bool] = False  # long, of usage that has been: read from the replica, if there is one
    deprecated: ClassVar[Deprecation | None] = None  # it, or some of its fields, is to go
    refusals: ClassVar[tuple[type[Exception], ...]] = ()  # of its use cases: 409 with their sentence

    client: Client
    moment: datetime
    query: dict[str, Any]
    idempotency_key: str  # of a POST; "" for none

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """As DRF's, with the handler inside the scope of the client."""
        self.args, self.kwargs = args, kwargs
        self.headers: dict[str, str] = {} if self.deprecated is None else self.deprecated.headers
        self.query, self.idempotency_key = {}, ""
        self.request = self.initialize_request(request, *args, **kwargs)
        self.moment = datetime.now(UTC)
        response: HttpResponseBase
        try:
            self._enter(request)
            name = str(request.method).lower()
            is_method = name in self.http_method_names
            handler = (
                getattr(self, name, self.http_method_not_allowed)
                if is_method
                else self.http_method_not_allowed
            )
            with acting_as(self.client.name, through=f"API {request.method} {request.path}"):
                response = self._handled(request, handler)
            if request.method not in READS:
                replica.remember_change(self.client.key.maker_id)
        except Exception as error:  # noqa: BLE001 - DRF's way: what is no ProblemError is raised again
            response = self.handle_exception(error)
        for name, value in self.headers.items():
            response.headers.setdefault(name, value)
        return response

    def _enter(self, request: HttpRequest) -> None:
        self.client = client_of(request)
        is_read = request.method in READS
        self._count(is_read=is_read)
        method = str(request.method).lower()
        if method == "options" or method not in self.http_method_names or not hasattr(self, method):
            return  # it says which methods there are, or 405 follows
        scope = self.scope if is_read else self.write_scope or self.scope
        if scope:
            self.client.require(scope)
        if self.whole_tenant and self.client.key.project_id is not None:
            detail = "This belongs to the whole tenant: use a key without a project."
            raise ProblemError(403, "one-project", "The key is limited to one project", detail)
        if self.of_everybody and self.client.tenant is not None and self.client.tenant.only_users is not None:
            detail = "Members of this tenant see their own jobs and the totals of their projects alone."
            raise ProblemError(403, "own-usage", "This shows usage of everybody", detail)
        if any("\0" in str(name) for name in self.kwargs.values()):  # which no text of the database holds
            raise not_found()
        self.query = parameters.read(request.GET, self.parameters if is_read else self.write_parameters)

    write_parameters: ClassVar[Sequence[Parameter]] = ()

    def _count(self, *, is_read: bool) -> None:
        """The headers say of which limit the least is left. Raises ProblemError 429."""
        shared = [("requests", limits.REQUESTS), *([] if is_read else [("writes", limits.WRITES)])]
        counted = [
            limits.count(name, self.client.key.prefix, most=most, moment=self.moment)
            for name, most in ([self.allotment] if self.allotment else shared)
        ]
        allotment = min(counted, key=attrgetter("left"))
        self.headers |= allotment.headers
        if allotment.is_exceeded:
            raise limits.refuse(allotment)

    def _handled(self, request: HttpRequest, handler: Callable[..., HttpResponse]) -> HttpResponse:
        if self.beside and request.method == "POST":  # what it does outside is not undone with a transaction
            return self._answer(request, handler)
        return with_files(lambda: self._answer(request, handler))

    def _answer(self, request: HttpRequest, handler: Callable[..., HttpResponse]) -> HttpResponse:
        def work() -> HttpResponse:
            scope = self._scope() if self.beside and request.method == "POST" else self.database()
            with scope:
                try:
                    return handler(self.request, **self.kwargs)
                except self.refusals as error:
                    raise refused(sentence(error)) from error

        def work_again() -> HttpResponse:
            try:
                return work()
            except IntegrityError:  # somebody else has made the same meanwhile, to be seen
                return work()

        act = work if self.beside or self.binary else work_again  # what these did or read is not undone
        if self.is_report and request.method in READS:
            return replica.read(work, person=self.client.key.maker_id)
        if request.method != "POST":
            return act()
        is_preview = bool(self.query.get("dry_run"))
        self.idempotency_key = idempotency.key_of(request, required=self.needs_idempotency and not is_preview)
        if not self.idempotency_key or is_preview:
            return act()
        answer = idempotency.answer_beside if self.beside else idempotency.answer_once
        digest = idempotency.digest_of(request, request.body)
        return answer(
            owner=self.client.owner, key=self.idempotency_key, digest=digest, moment=self.moment, work=act
        )

    @contextmanager
    def database(self) -> Iterator[None]:
        """A transaction with a time limit, in which only the client's rows can be read; undone after a preview."""
        tenant = self.client.tenant
        if self._only_reads() and tenant is not None:  # the scope is a transaction itself: fewer statements
            with tenant_scope(tenant, longest_query=self.longest_query):
                yield
            return
        with transaction.atomic():
            if self.request.method in REPLACES and not self.binary:
                self.take_turn(self.request.path)
            limit_queries(self.longest_query)
            with self._scope():
                yield
            if self.query.get("dry_run"):
                with connection.cursor() as cursor:
                    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                transaction.set_rollback(True)

    def take_turn(self, path: str) -> None:
        """Wait until nobody writes the object of this address, and keep others waiting until the transaction ends.

        Before any other lock, so that nobody who waits here keeps others waiting.
        """
        tenant = self.client.tenant.slug if self.client.tenant is not None else self.query.get("tenant")
        locks.hold_name(f"{tenant} {path.lower()}")  # addresses of e-mail are the same in capitals

    def _only_reads(self) -> bool:
        return not (self.beyond_tenant or self.acts) and self.request.method in READS

    def _scope(self) -> AbstractContextManager[None]:
        tenant = self.client.tenant
        if tenant is None or self.beyond_tenant:
            return nullcontext()
        return tenant_scope(tenant) if self._only_reads() else acting_scope(tenant)

    def body(self, fields: type[Body] | None = None, *, partial: bool = False) -> dict[str, Any]:
        """What was sent, as `request_serializer` declares it. Raises ValidationError, which says what is wrong where.

        `partial`: of a PATCH, only what was given.
        """
        kind = fields or self.request_serializer or NoBody
        serializer = kind(data=self.request.data, partial=partial, context={"view": self})
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)

    def one(self, row: object, *, status: int = 200) -> HttpResponse:
        """A single object, with its ETag; 304 for whoever has it."""
        data = self.representation(row)
        self._expand([row], [data])
        return self.tagged(as_json(data, status=status), self.settled(data))

    def tagged(self, response: HttpResponse, settled: Any) -> HttpResponse:
        """The answer with its ETag; of a reader who has it, 304. `settled`: what was set of the object."""
        response.headers["ETag"] = tag = entity_tags.tag_of(settled, response.content)
        known = self.request.headers.get("If-None-Match", "")
        if self.request.method in READS and entity_tags.is_known(known, tag):
            return HttpResponse(status=304, headers={"ETag": tag})
        return response

    def settled(self, data: Any) -> Any:
        """Of an object's representation, what somebody set."""
        return entity_tags.without(data, self.moving)

    def match(self, row: object) -> None:
        """Raises ProblemError 412 where `If-Match` names another state of the row, which the caller has locked."""
        self.match_settled(self.settled(self.representation(row)))

    def match_settled(self, settled: Any) -> None:
        """As `match`, of what was set."""
        wanted = self.request.headers.get("If-Match", "")
        if wanted and not entity_tags.is_same(wanted, settled):
            detail = "It was changed meanwhile: read it again, then send the change with its new ETag."
            raise ProblemError(412, "changed-meanwhile", "It is not as you know it", detail)
        unwanted = self.request.headers.get("If-None-Match", "")
        if unwanted and entity_tags.is_same(unwanted, settled):
            detail = "There is such an object already: send the request without If-None-Match to change it."
            raise ProblemError(412, "exists-already", "It is there already", detail)

    def match_new(self) -> None:
        """Raises ProblemError 412 where `If-Match` names a state of what is not there."""
        if self.request.headers.get("If-Match"):
            detail = "There is no such object yet: send the request without If-Match to make it."
            raise ProblemError(412, "changed-meanwhile", "It is not as you know it", detail)

    def options(  # type: ignore[override]
        self, request: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Which methods there are. CORS is off."""
        del request, args, kwargs
        return HttpResponse(status=204, headers={"Allow": ", ".join(self.allowed_methods)})

    def page(self, rows: QuerySet[Any, Any], *, order: Sequence[str], **context: Any) -> HttpResponse:
        """A page of the list, read by its cursor."""
        if self.query.get(expansion.NAME) and self.query["limit"] > expansion.LARGEST_PAGE:
            sentence = (
                f"With expand, a page has at most {expansion.LARGEST_PAGE} objects: send limit=50 or less."
            )
            raise bad_parameter(expansion.NAME, sentence)
        page = cursors.page(
            rows, order=order, query=self.query, listing=self.request.path, owner=self.client.owner
        )
        shown = self.prepared(page)
        data = self.representations(shown, **context)
        self._expand(shown, data)
        body: dict[str, Any] = {"data": data, "next": page.next}
        if page.count is not None:
            body["count"] = page.count
        return as_json(body)

    def _expand(self, rows: Sequence[Any], data: Sequence[dict[str, Any]]) -> None:
        if paths := self.query.get(expansion.NAME):
            expansion.expand(self, rows, data, paths=paths, of=self.expansions)

    def prepared(self, page: cursors.Page[Any]) -> Sequence[Any]:
        """The page's rows with what is computed for all of them at once."""
        return page.rows

    def representation(self, row: object, **context: Any) -> Any:
        return self.serializer(row, context=context).data

    def representations(self, rows: Sequence[Model], **context: Any) -> Any:
        if not context and issubclass(self.serializer, RowSerializer):
            return self.serializer.of_rows(rows)
        return self.serializer(rows, many=True, context=context).data

    def handle_exception(self, exc: Exception) -> HttpResponse:  # type: ignore[override]
        """A problem; what is none goes on to the middleware."""
        problem = of_exception(exc)
        if problem is None:
            raise exc
        return as_response(problem)


class TenantEndpoint(Endpoint):
    """An address that reads one tenant's objects: the key's, or that which an operator names."""

    in_files: ClassVar[bool] = False  # its rows may stand in files, which are read in a tenant's scope alone

    @contextmanager
    def database(self) -> Iterator[None]:
        with super().database():
            named = self.tenant if self.in_files and self.client.tenant is None else None
            with tenant_scope(named) if named is not None else nullcontext():
                yield

    @property
    def tenant(self) -> Tenant | None:
        """The key's tenant; of an operator's key the one that `tenant` names, or None for all."""
        if self.client.tenant is not None:
            if self.query.get("tenant") not in {None, self.client.tenant.slug}:
                raise not_found()
            return self.client.tenant
        slug = self.query.get("tenant")
        if slug is None:
            return None
        return Tenant.objects.get(slug=slug)

    def needed_tenant(self) -> Tenant:
        """As `tenant`; Problem 400 where an operator names none."""
        tenant = self.tenant
        if tenant is None:
            raise bad_parameter("tenant", "Name the tenant: an operator's key belongs to none.")
        return tenant

    def of_tenant(self, rows: QuerySet[Any, Any], path: str = "tenant") -> QuerySet[Any, Any]:
        """Those of the tenant."""
        tenant = self.tenant
        return rows if tenant is None else rows.filter(**{path: tenant})
