"""What the admin's pages share: tables to look at, changes with a name to them, refusals as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from django.contrib import admin, messages
from django.contrib.admin.options import BaseModelAdmin, IncorrectLookupParameters
from django.contrib.admin.widgets import AdminSplitDateTime, AutocompleteSelect
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import DateField, DateTimeField, JSONField, Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from portal.constraint_sentences import SentenceForm
from portal.core.audit import acting_as
from portal.days import check_day
from portal.sentences import NO_CHOICE

M = TypeVar("M", bound=Model)
FEW = 10_000  # rows that are counted exactly

Display = Callable[[Any, Any], str]


class Estimated(Paginator[Any]):
    """Of a large table without a filter the planner's estimate will do: counting takes as long as reading."""

    @cached_property
    def count(self) -> int:
        query = getattr(self.object_list, "query", None)
        if query is None or query.where:
            return super().count
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass",
                [connection.ops.quote_name(query.model._meta.db_table)],
            )
            (estimate,) = cursor.fetchone()
        return int(estimate) if estimate > FEW else super().count


def no_page_of_an_object(request: HttpRequest, where: str) -> HttpResponse:
    """In the place of Django's way from a row to its page elsewhere: a row's page here has the link (`portal_page`)."""
    del request, where
    raise Http404("The page of a row in the administration leads to its page on the portal.")


class Chosen(AutocompleteSelect):
    """Shows what was chosen. What is no row's number was not: Django's own would look for it, and fail."""

    def optgroups(self, name: str, value: Sequence[str], attrs: dict[str, Any] | None = None) -> Any:
        return super().optgroups(
            name, [each for each in value if str(each).isascii() and str(each).isdecimal()], attrs
        )


class DateAndTime(AdminSplitDateTime):
    """Both inputs say which they are: the field's own label names neither."""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, value, attrs)
        for part, title in zip(context["widget"]["subwidgets"], ("date", "time"), strict=True):
            words = name.rpartition("-")[2].replace("_", " ")
            part["attrs"]["aria-label"] = f"{words.capitalize()}: {title}"
        return context


class Choosing(BaseModelAdmin[M]):
    """Whatever has `autocomplete_fields`, days or moments."""

    formfield_overrides: ClassVar[Any] = {
        DateField: {"validators": [check_day]},
        DateTimeField: {"widget": DateAndTime, "validators": [check_day]},
    }

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name in self.get_autocomplete_fields(request):
            kwargs.setdefault("widget", Chosen(db_field, self.admin_site, using=kwargs.get("using")))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        kwargs.setdefault("error_messages", NO_CHOICE)
        return super().formfield_for_choice_field(db_field, request, **kwargs)


class Recorded(Choosing[M], admin.ModelAdmin[M]):
    """Changes carry the name of who made them; a `refusals` exception is a message, and nothing was changed."""

    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    list_per_page = 50
    show_full_result_count = False
    paginator: ClassVar[type[Paginator[Any]]] = Estimated

    def get_form(
        self, request: HttpRequest, obj: M | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (SentenceForm, form), {})

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return self._recorded(super().changeform_view, request, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return self._recorded(super().delete_view, request, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return self._recorded(super().changelist_view, request, *args, **kwargs)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """A day of the list that no calendar has is no filter: Django's own way fails at such a number."""
        if lookup.endswith(("__year", "__month", "__day")) and len(str(value)) > len("9999"):
            raise IncorrectLookupParameters
        return super().lookup_allowed(lookup, value, request)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """None for whoever may only look at the table."""
        may = request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")
        return super().get_actions(request) if may else {}

    def _recorded(
        self, view: Callable[..., HttpResponse], request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        try:
            with acting_as(str(request.user)):
                return view(request, *args, **kwargs)
        except self.refusals as refusal:
            self.message_user(request, str(refusal), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())


class ReadOnly(Recorded[M]):
    """A table to look at: what is kept as JSON stands in lines, and a column of `shown_as` as that method writes it."""

    shown_as: ClassVar[Mapping[str, str]] = {}

    def get_fields(self, request: HttpRequest, obj: M | None = None) -> list[Any]:
        return list(dict.fromkeys(self._shown(name) for name in super().get_fields(request, obj)))

    def get_readonly_fields(self, request: HttpRequest, obj: M | None = None) -> tuple[Any, ...]:
        """Methods, which Django takes for no columns of the form."""
        columns = (field.name for field in self.opts.get_fields() if isinstance(field, JSONField))
        own = super().get_readonly_fields(request, obj)
        return (*own, *self.shown_as.values(), *(in_lines(name) for name in columns))

    def _shown(self, name: Any) -> Any:
        if name in self.shown_as:
            return self.shown_as[name]
        is_column = isinstance(name, str) and name in {field.name for field in self.opts.fields}
        return in_lines(name) if is_column and isinstance(self.opts.get_field(name), JSONField) else name

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False


class ReadOnlyInline(admin.TabularInline[Any, Any]):
    """Rows of another table to look at, with a link to each."""

    extra = 0
    can_delete = False
    show_change_link = True

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@cache
def in_lines(column: str) -> Callable[[Model], SafeString]:
    """What shows a column of JSON: a line for each value, named by where it stands."""

    @admin.display(description=column.replace("_", " "))
    def show(row: Model) -> SafeString:
        lines = list(_lines_of(getattr(row, column)))
        return format_html_join(SafeString("<br>"), "{}: {}", lines) if lines else SafeString("–")

    show.__name__ = column
    return show


def _lines_of(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value, 1)
    else:
        yield place or "value", str(value)
    for name, part in inner:
        yield from _lines_of(part, f"{place} {name}".strip())


def portal_page(name: str, *paths: str) -> Callable[[Any, Any], str | None]:
    """A `view_on_site` of an admin class: the page of that name, by attributes of the row; None where one is empty."""

    def address(_: object, row: Model) -> str | None:
        try:
            arguments = [attrgetter(path)(row) for path in paths]
        except AttributeError:  # of a row that leads on to none
            return None
        return None if None in arguments else reverse(name, args=arguments)

    return address


def instant(second: int | None) -> str:
    """A UTC epoch second as 2026-03-01 10:00:00; a dash for none."""
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}" if second is not None else "–"


def epoch(field: str, title: str) -> Display:
    """A method of an admin class: a column that shows a field of epoch seconds as an instant in UTC."""

    @admin.display(description=f"{title} (UTC)", ordering=field)
    def show(_: object, row: Model) -> str:
        return instant(getattr(row, field))

    return show
