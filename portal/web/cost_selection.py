"""What the pages of costs look at, as their addresses say it: ranges, groups and filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Self, TypeVar
from urllib.parse import urlencode

from django.http import Http404, QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.queries.cost_explorer import FILTERS, GROUPS, CostQuery, Days, Step
from billing.queries.jobs import EMPTY
from billing.queries.usage_series import DAY, Grouping
from portal.web import format as say
from portal.web.badges import job_badge
from portal.web.day_ranges import Compared, DayRangeError, earlier, read_days
from portal.web.form_input import Option, options

Chosen = TypeVar("Chosen", Compared, Step)

MOST_DAYS = 1_830
MOST_BUCKETS = 100
LONGEST = 200  # characters of a filter
LEVELS = (GROUPS, 28, 100)  # how many groups have a name; *Other* leads from each to the next
TOO_LONG = gettext_noop("A page shows {days} days at most. Choose a shorter range.")
TOO_MANY = gettext_noop(
    "{buckets} columns are more than a page shows. Choose weeks or months, or a shorter range."
)
LABELS = {
    Grouping.PROJECT: gettext_noop("Project"),
    Grouping.USER: gettext_noop("User"),
    Grouping.ACCOUNT: gettext_noop("Account"),
    Grouping.CLUSTER: gettext_noop("Cluster"),
    Grouping.GPU_MODEL: gettext_noop("GPU model"),
    Grouping.QUEUE: gettext_noop("Queue"),
    Grouping.QOS: gettext_noop("QOS"),
    Grouping.STATE: gettext_noop("State"),
    Grouping.METER: gettext_noop("Meter"),
}
STEPS = {Step.DAY: gettext_noop("Day"), Step.WEEK: gettext_noop("Week"), Step.MONTH: gettext_noop("Month")}
COMPARED = {
    Compared.BEFORE: gettext_noop("The range before"),
    Compared.MONTH: gettext_noop("A month earlier"),
    Compared.YEAR: gettext_noop("A year earlier"),
    Compared.OTHER: gettext_noop("Other days"),
}
JOB_FILTERS = {
    *(Grouping.USER, Grouping.ACCOUNT, Grouping.CLUSTER, Grouping.GPU_MODEL),
    *(Grouping.QUEUE, Grouping.QOS, Grouping.STATE),
}
"""By which the list of jobs can be filtered by the same text."""


@dataclass(frozen=True, kw_only=True)
class CostSelection:
    """`error` is a sentence where the address names no range that a page can show; the month so far stands then."""

    later: Days
    earlier: Days
    compared: Compared
    by: tuple[Grouping, ...]
    step: Step
    filters: Mapping[Grouping, str]
    today: date
    error: str = ""
    groups: int = GROUPS  # one of LEVELS

    @classmethod
    def of(cls, query: QueryDict, *, today: date, by: tuple[Grouping, ...]) -> Self:
        """`by`: what is grouped by where the address does not say. What is no choice is 404, no day an error."""
        so_far, error = Days(today.replace(day=1), today + DAY), ""
        later = so_far
        compared = _choice(Compared, query.get("compare") or Compared.BEFORE)
        before = None
        try:
            later = read_days(query) or so_far
            if compared is Compared.OTHER:
                before = read_days(query, "earlier_from", "earlier_through")
        except DayRangeError as refusal:
            error = str(refusal)
        if (later.end - later.first).days > MOST_DAYS:
            later, error = so_far, _(TOO_LONG).format(days=say.whole(MOST_DAYS))
        step = _choice(Step, text) if (text := query.get("step", "")) else _step(later)
        buckets = sum(1 for _bucket in later.buckets(step))
        if buckets > MOST_BUCKETS:
            error = error or _(TOO_MANY).format(buckets=buckets)
        return cls(
            later=later,
            earlier=before or earlier(later, compared),
            compared=compared,
            by=_groupings(query) if "by" in query else by,
            step=step,
            filters={
                one: "" if text == EMPTY else text
                for one in FILTERS
                if (text := query.get(str(one), "").replace("\0", "").strip()[:LONGEST])
            },
            today=today,
            error=error,
            groups=next((level for level in LEVELS if query.get("groups") == str(level)), GROUPS),
        )

    @property
    def cost_query(self) -> CostQuery:
        return CostQuery(self.later, self.earlier, self.by, self.filters)

    def query(self, **more: str) -> str:
        """All of it, as an address has it; `more` wins."""
        parameters = {
            **_days(self.later),
            "compare": str(self.compared),
            **(_days(self.earlier, "earlier_") if self.compared is Compared.OTHER else {}),
            "by": str(self.by[0]) if self.by else "",
            "and": str(self.by[1]) if len(self.by) > 1 else "",
            "step": str(self.step),
            "groups": str(self.groups) if self.groups != GROUPS else "",
            **_texts(self.filters),
            **more,
        }
        filled = {name: text for name, text in parameters.items() if text or name == "by"}
        return "?" + urlencode(filled)

    def on(self, days: Days) -> Self:
        """The same of other days, in steps that fit them."""
        return replace(self, later=days, earlier=earlier(days, self.compared), step=_step(days))

    @property
    def more_groups(self) -> Self | None:
        """The same with more groups that have a name; None: there is no further level."""
        more = next((level for level in LEVELS if level > self.groups), None)
        return replace(self, groups=more) if more else None

    def without(self, one: Grouping) -> Self:
        return replace(self, filters={name: text for name, text in self.filters.items() if name is not one})

    def within(self, values: Sequence[str]) -> Self:
        """Of one of its groups alone."""
        return replace(self, filters={**self.filters, **dict(zip(self.by, values, strict=True))})

    def jobs(self, slug: str, days: Days, values: Sequence[str], projects: Mapping[str, int]) -> str:
        """Where the jobs of a group are listed that ran on these days; "" by meter, which is no property of jobs."""
        chosen = {**self.filters, **dict(zip(self.by, values, strict=False))}
        if Grouping.METER in chosen:
            return ""
        parameters = {**_days(days), **_texts({one: chosen[one] for one in chosen if one in JOB_FILTERS})}
        if (project := chosen.get(Grouping.PROJECT, "")) in projects:
            parameters["project"] = str(projects[project])
        return reverse("jobs", args=[slug]) + "?" + urlencode(parameters)

    @property
    def chips(self) -> list[tuple[str, str, str]]:
        """The filters that are set: label, value, and the address without each."""
        return [
            (_(LABELS[one]), value_text(one, text), self.without(one).query())
            for one, text in self.filters.items()
        ]

    @property
    def form(self) -> Mapping[str, list[Option]]:
        """What the form offers."""
        groups = [("", _("Nothing")), *((str(one), _(LABELS[one])) for one in FILTERS)]
        return {
            "by": options(groups, str(self.by[0]) if self.by else ""),
            "and": options(groups, str(self.by[1]) if len(self.by) > 1 else ""),
            "step": options([(str(one), _(label)) for one, label in STEPS.items()], str(self.step)),
            "compare": options([(str(one), _(label)) for one, label in COMPARED.items()], str(self.compared)),
        }

    def filter_options(self, choices: Mapping[str, Sequence[str]]) -> list[tuple[str, str, list[Option]]]:
        """Of each filter its name, label and choices; one that is set is a choice, whatever it is."""
        rows = []
        for one in FILTERS[:-1]:
            offered = [text or EMPTY for text in choices.get(str(one), ())]
            chosen = (self.filters[one] or EMPTY) if one in self.filters else ""
            texts = value_texts(one, [*offered, *({chosen} - {"", *offered})])
            rows.append(
                (
                    str(one),
                    _(LABELS[one]),
                    options(texts.items(), chosen),
                )
            )
        return rows

    @property
    def shortcuts(self) -> list[tuple[str, str, bool]]:
        """The usual ranges: label, address, and whether it is the one shown."""
        this = self.today.replace(day=1)
        last = (this - DAY).replace(day=1)
        ranges = {
            _("Last 7 days"): Days(self.today - 6 * DAY, self.today + DAY),
            _("This month"): Days(this, self.today + DAY),
            _("Last month"): Days(last, this),
            _("Last 90 days"): Days(self.today - 89 * DAY, self.today + DAY),
            _("This year"): Days(this.replace(month=1), self.today + DAY),
        }
        return [(label, self.on(days).query(), days == self.later) for label, days in ranges.items()]


def days_text(days: Days) -> str:
    """`1 Nov 2026 – 26 Nov 2026`, or the one day."""
    return say.day(days.first) if days.first == days.last else f"{say.day(days.first)} – {say.day(days.last)}"


def group_names(by: Sequence[Grouping], groups: Sequence[Sequence[str] | None]) -> list[str]:
    """`ben · h100`; of all that have no name of their own *Other*, of no grouping *All usage*."""
    texts = [value_texts(one, {values[place] for values in groups if values}) for place, one in enumerate(by)]
    return [
        _("Other")
        if values is None
        else " · ".join(own[value] for own, value in zip(texts, values, strict=True)) or _("All usage")
        for values in groups
    ]


def value_texts(one: Grouping, values: Iterable[str]) -> dict[str, str]:
    """By value as people read it. As it came where two read the same: Slurm says RUNNING, Kubernetes Running."""
    texts = {value: value_text(one, value) for value in values}
    counts = Counter(texts.values())
    return {value: text if counts[text] == 1 else value for value, text in texts.items()}


def value_text(one: Grouping, value: str) -> str:
    """A state as lists of jobs name it, any other value as it came."""
    if value in {"", EMPTY}:
        return _(EMPTY)
    return _(job_badge(value).label) if one is Grouping.STATE else value


def _days(days: Days, prefix: str = "") -> dict[str, str]:
    return {f"{prefix}from": days.first.isoformat(), f"{prefix}through": days.last.isoformat()}


def _texts(filters: Mapping[Grouping, str]) -> dict[str, str]:
    return {str(one): text or EMPTY for one, text in filters.items()}


def _choice(kind: type[Chosen], text: str) -> Chosen:
    try:
        return kind(text)
    except ValueError as unknown:
        raise Http404("no such choice") from unknown


def _groupings(query: QueryDict) -> tuple[Grouping, ...]:
    texts = [text for name in ("by", "and") if (text := query.get(name, ""))]
    if not {*texts} <= {*map(str, FILTERS)}:
        raise Http404("no such choice")
    return tuple(dict.fromkeys(Grouping(text) for text in texts))


def _step(days: Days) -> Step:
    """Of a range that says none."""
    count = (days.end - days.first).days
    if count <= 45:
        return Step.DAY
    return Step.WEEK if count <= 200 else Step.MONTH
