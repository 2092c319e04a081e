"""Real clusters, seven plans whose borders lie among what their tenants use, and how Op writes them for `apply`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from tests.scenarios import oracle
from tests.scenarios.oracle import Discount, Job, Plan, Price, Window


@dataclass(frozen=True)
class Site:
    """A real cluster: what its plans select by, and how much of everything there is in a month."""

    file: str
    since: date  # every tenant is on its plan from then on: in mid-month, before the first job
    first: str
    last: str  # months in which periods begin, the one before the first too for those that begin on the 15th
    meter: str
    where: tuple[str, str]  # what the first price selects; the second takes the rest
    state: str  # of jobs that have a price of their own when they are selected by `where` too
    hours: int  # by which tiers, allowances and commitments are told

    @property
    def read_through(self) -> str:
        year, month = (int(part) for part in self.last.split("-"))
        return f"{year + month // 12}-{month % 12 + 1:02d}-20"


PHILLY = Site(
    file="slurm/philly_2017-09_2017-11.sacct.gz",
    since=date(2017, 9, 4),
    first="2017-08",
    last="2017-12",
    meter="gpu-hour",
    where=("gpu_model", "g24"),
    state="FAILED",
    hours=10_000,
)
SUPERCLOUD = Site(
    file="slurm/supercloud_2021-01_2021-03.sacct.gz",
    since=date(2021, 1, 4),
    first="2020-12",
    last="2021-03",
    meter="gpu-hour",
    where=("queue", "normal"),
    state="CANCELLED",
    hours=600,
)
UBCCR = Site(
    file="slurm/ubccr_pozidriv_2016-12.sacct.gz",
    since=date(2016, 12, 21),
    first="2016-12",
    last="2017-01",
    meter="cpu-core-hour",
    where=("queue", "croutons"),
    state="FAILED",
    hours=2_000,
)
FAU = Site(
    file="slurm/fau_alex_fritz_2023-02.sacct.gz",
    since=date(2023, 2, 5),
    first="2023-01",
    last="2023-02",
    meter="gpu-hour",
    where=("gpu_model", "a40"),
    state="COMPLETED",
    hours=150,
)


def plans_of(site: Site) -> list[Plan]:
    """Seven plans whose borders lie among what the tenants of the site use."""
    where = {site.where[0]: site.where[1]}
    return [*_by_quantity(site, where), *_by_terms(site, where), _by_hours(site, where)]


def _by_hours(site: Site, where: dict[str, str]) -> Plan:
    """Nights whose borders lie in the hour that clocks skip or repeat, and weekends that are dearer for some."""
    nights = (Window("01234", "21:30", "01:30"), Window("01234", "02:15", "06:45"))
    weekends = (Window("56", "00:00", "24:00"),)
    return Plan(
        "time-of-day",
        "USD",
        (
            Price(site.meter, (("", "2.30"),), where),
            Price(site.meter, (("", "1.0999"),)),
            Price(site.meter, (("", "0.377"),), hours=nights),
            Price(site.meter, (("", "3.1"),), where, hours=weekends),
            Price(site.meter, (("", "0.05"),), where | {"state": site.state}, hours=nights + weekends),
            *([Price("cpu-core-hour", (("", "0.0123"),))] if site.meter == "gpu-hour" else []),
        ),
        zone="America/Los_Angeles",
        together=2,
    )


def _by_quantity(site: Site, where: dict[str, str]) -> list[Plan]:
    return [
        Plan(
            "per-unit",
            "USD",
            (
                Price(site.meter, (("", "2.30"),), where),
                Price(site.meter, (("", "1.0999"),)),
                Price(site.meter, (("", "0.377"),), where | {"state": site.state}),
                *([Price("cpu-core-hour", (("", "0.0123"),))] if site.meter == "gpu-hour" else []),
                Price("memory-gib-hour", (("", "0.00137"),)),
            ),
        ),
        Plan(
            "graduated",
            "KWD",
            _two(site, "graduated", ("3.001", "2.503", "2.009", "1.777"), ("1.5", "1.37", "1.11", "0.9")),
            zone="America/Los_Angeles",
            together=2,
            allowance=f"{site.hours * 5 // 2}",
            rollover=True,
        ),
        Plan(
            "volume",
            "USD",
            _two(site, "volume", ("3.001", "2.503", "2.009", "1.777"), ("1.5", "1.37", "1.11", "0.9")),
            zone="Asia/Kathmandu",
            together=3,
            discounts=(
                Discount(percent="12.5", since=date(site.since.year, site.since.month, site.since.day + 3)),
            ),
        ),
    ]


def _by_terms(site: Site, where: dict[str, str]) -> list[Plan]:
    return [
        Plan(
            "commitment",
            "USD",
            (Price(site.meter, (("", "2.30"),), where), Price(site.meter, (("", "1.10"),))),
            zone="Europe/Berlin",
            anchor=15,
            commitment=(f"{site.hours * 2}.01", "1.5"),
        ),
        Plan(
            "packages",
            "JPY",
            (Price(site.meter, (), model="package", package=(f"{site.hours // 30}", "3333")),),
            together=2,
            fee="12345",
            discounts=(
                Discount(amount="250000"),
                Discount(percent="33.333", since=site.since, until=date(site.since.year + 1, 1, 20)),
            ),
        ),
        Plan(
            "tokens",
            "TOK",
            (Price(site.meter, (("", "0.333333"),), where), Price(site.meter, (("", "0.77777"),))),
            zone="America/Los_Angeles",
            grants=("100.5", "30.25"),
        ),
    ]


def _two(site: Site, model: str, first: tuple[str, ...], second: tuple[str, ...]) -> tuple[Price, Price]:
    where = {site.where[0]: site.where[1]}
    return (
        Price(site.meter, _tiers(site, *first), where, model),
        Price(site.meter, _tiers(site, *second), model=model),
    )


def _tiers(site: Site, *prices: str) -> tuple[tuple[str, str], ...]:
    bounds = (Fraction(1, 10), Fraction(1), Fraction(3))
    ends = (f"{float(bound * site.hours):.6f}" for bound in bounds)
    return (*zip(ends, prices, strict=False), ("", prices[-1]))


def written(plan: Plan, site: Site, work: list[Job]) -> str:
    """The plan and its tenants as the operator writes them."""
    charges = {price.meter.partition("-")[0] for price in plan.prices}
    lines = [
        "[[plan]]",
        f'name = "{plan.name}"',
        f'currency = "{plan.currency}"',
        f'settles = "{"wallet" if plan.currency == "TOK" else "invoice"}"',
        f"charges = {sorted(charges)}",
        f"from = {site.since}",
    ]
    if plan.allowance:
        lines += ["[[plan.allowance]]", 'name = "Included"', f'hours = "{plan.allowance}"']
        lines += [f"rollover = {str(plan.rollover).lower()}"]
    if plan.fee:
        lines += ["[[plan.fee]]", 'name = "Access"', f'amount = "{plan.fee}"']
    if plan.commitment:
        lines += ["[plan.commitment]", f'amount = "{plan.commitment[0]}"']
        lines += [f'overage_factor = "{plan.commitment[1]}"']
    for place, discount in enumerate(plan.discounts):
        lines += ["[[plan.discount]]", f'name = "Discount {place}"']
        lines += [f'percent = "{discount.percent}"' if discount.percent else f'amount = "{discount.amount}"']
        lines += [f"from = {max(discount.since, site.since)}", f"until = {discount.until}"]
    for price in plan.prices:
        lines += ["[[plan.price]]", f'meter = "{price.meter}"', f'model = "{price.model}"']
        lines += [*scale(price)]
        lines += ['allowance = "Included"'] if plan.allowance else []
        if price.where:
            lines += [
                "where = { " + ", ".join(f'{key} = "{value}"' for key, value in price.where.items()) + " }"
            ]
        if price.hours:
            lines += ["hours = [", *(f"  {_window(window)}," for window in price.hours), "]"]
    owned: dict[str, list[str]] = {}
    for account, tenant in oracle.tenants(plan, {job.account for job in work}).items():
        owned.setdefault(tenant, []).append(account)
    for tenant, accounts in owned.items():
        lines += ["[[tenant]]", f'slug = "{tenant}"', f'name = "{tenant}"', f'plan = "{plan.name}"']
        lines += [f"plan_from = {site.since}", f'timezone = "{plan.zone}"', f"anchor_day = {plan.anchor}"]
        lines += ["accounts = ["]
        lines += [f'  {{ cluster = "real", account = "{name}" }},' for name in accounts]
        lines += ["]"]
        if plan.currency == "TOK":
            lines += [
                "[[tenant.wallet]]",
                'for = "user"',
                'unit = "TOK"',
                f"from = {site.since}",
                "grants = [",
            ]
            lines += [f'  {{ name = "begin", every = "once", amount = "{plan.grants[0]}" }},']
            lines += [
                f'  {{ every = "month", amount = "{plan.grants[1]}", until = {site.read_through[:8]}01 }},',
                "]",
            ]
    return "\n".join(lines) + "\n"


def _window(window: Window) -> str:
    days = ",".join(("mon", "tue", "wed", "thu", "fri", "sat", "sun")[int(day)] for day in window.days)
    return f'{{ days = "{days}", from = "{window.begins}", to = "{window.ends}" }}'


def scale(price: Price) -> Iterator[str]:
    if price.model == "package":
        yield f'package = "{price.package[0]}"'
        yield f'package_price = "{price.package[1]}"'
    elif price.model == "per_unit":
        yield f'unit_price = "{price.tiers[0][1]}"'
    else:
        yield "tiers = ["
        for up_to, tier_price in price.tiers:
            yield f'  {{ {f"up_to = {chr(34)}{up_to}{chr(34)}, " if up_to else ""}unit_price = "{tier_price}" }},'
        yield "]"
