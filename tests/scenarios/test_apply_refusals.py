"""A file that cannot be meant is refused whole, in sentences that say where and what would do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from billing.models import Plan, Price, Subscription
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests import builders
from tests.builders import a_job, ingest
from tests.scenarios.configuring import PHILLY, Op, run

pytestmark = pytest.mark.django_db

PRICE = 'meter = "gpu-hour"\nwhere = { gpu_model = "a100" }\nunit_price = "1.10"\nfrom = 2026-01-01\n'
ACCOUNTS = 'accounts = [{ cluster = "philly", account = "vision" }]'


@pytest.fixture
def op(tmp_path: Path) -> Op:
    return Op(tmp_path)


@pytest.mark.parametrize(
    ("original", "instead", "sentence"),
    [
        (
            'kind = "import"',
            'kind = "magic"',
            "cluster \"philly\": kind is 'magic'; allowed: import, slurm, prometheus, gpustack, push.",
        ),
        (
            'kind = "import"',
            'colour = "red"',
            (
                "cluster \"philly\": there is no key 'colour'; allowed: api_server, connection, energy_meter, "
                "job_prices, kind, may_end_jobs, name, node, shares, telemetry, timezone."
            ),
        ),
        (
            'timezone = "UTC"',
            'timezone = "Mars/Phobos"',
            (
                "cluster \"philly\": timezone is 'Mars/Phobos': 'Mars/Phobos' is not an IANA time zone, "
                "such as Europe/Berlin or UTC."
            ),
        ),
        ('name = "philly"', "name = 7", "cluster 1: name is a whole number; write text in quotes."),
        ('name = "philly"', 'name = ""', 'cluster "": name is empty.'),
        ("[[cluster]]", "[cluster]", "the file: cluster is a table; write a list of tables."),
        (
            '"USD"',
            '"EURO"',
            (
                "plan \"standard\": currency is 'EURO': it is no currency; write its code of ISO 4217, "
                "such as USD or EUR, or TOK for tokens."
            ),
        ),
        ('currency = "USD"', "", 'plan "standard": currency is missing.'),
        (
            '["gpu"]',
            '["gpu", "disk"]',
            "plan \"standard\": 'disk' is nothing to charge; that are gpu, cpu, memory, gpu-memory, billing.",
        ),
        (
            'charges = ["gpu"]',
            "",
            'plan "standard": charges is missing; list what is charged: gpu, cpu, memory, gpu-memory, billing, meters.',
        ),
        (
            "gpu-hour",
            "gpu-hours",
            (
                "plan \"standard\", price 1: 'gpu-hours' is not a meter; those are gpu-hour, cpu-core-hour, "
                "memory-gib-hour, gpu-memory-gib-hour, billing-hour."
            ),
        ),
        (
            '"1.10"',
            "1.10",
            (
                'plan "standard", price 1: unit_price is 1.10 without quotes, which is not exact; '
                'write "1.10" as text.'
            ),
        ),
        (
            '"1.10"',
            '"1,10"',
            'plan "standard", price 1: unit_price is \'1,10\'; write a number like "1.10".',
        ),
        ('"1.10"', '"-1"', 'plan "standard", price 1: A price is zero or more, not -1.'),
        (
            '"1.10"',
            '"0.1234567890123"',
            'plan "standard", price 1: A price has at most 12 decimals, unlike 0.1234567890123.',
        ),
        (
            '"1.10"',
            '"1000000000000"',
            'plan "standard", price 1: A price is below 1,000,000,000,000, unlike 1000000000000.',
        ),
        (
            "gpu_model =",
            "gpu =",
            (
                "plan \"standard\", price 1, where: there is no key 'gpu'; allowed: cluster, dimension, gpu_model, "
                "mig_profile, priority_class, qos, queue, state, use."
            ),
        ),
        (
            '{ gpu_model = "a100" }',
            "{ gpu_model = [] }",
            'plan "standard", price 1, where: gpu_model is an empty list; leave it out to select everything.',
        ),
        (
            '{ gpu_model = "a100" }',
            "{ gpu_model = 100 }",
            'plan "standard", price 1, where: gpu_model has to be text in quotes, or a list of such texts.',
        ),
        (
            '{ gpu_model = "a100" }',
            '{ gpu_model = "a,b" }',
            'plan "standard", price 1: A gpu_model to select by is not empty and has neither comma nor semicolon.',
        ),
        (
            '{ gpu_model = "a100" }',
            '{ cluster = "atlas" }',
            (
                "plan \"standard\", price 1: where.cluster names 'atlas', which neither the file nor the "
                "database has; known: philly."
            ),
        ),
        (
            "from = 2026-01-01\n\n",
            'from = "2026-01-01"\n\n',
            'plan "standard", price 1: from is text; write a date like 2017-01-01, without quotes.',
        ),
        (
            "from = 2026-01-01\n\n",
            "\n",
            'plan "standard", price 1: from is missing; write from = 2017-01-01, for the price or for its plan.',
        ),
        (
            "from = 2026-01-01\n\n",
            "from = 2026-01-01\nuntil = 2025-12-31\n\n",
            (
                'plan "standard", price 1: The price gpu-hour gpu_model=a100 at 1.1 would end on 2025-12-31, '
                "before it begins."
            ),
        ),
        (
            '"vision-lab"',
            '"vision lab"',
            "tenant \"vision lab\": slug is 'vision lab': Enter a valid",
        ),
        (
            'name = "Vision Lab"',
            "",
            'tenant "vision-lab": name is missing; it is what invoices are addressed to.',
        ),
        (
            'name = "Vision Lab"',
            'name = "Vision Lab"\nanchor_day = 32',
            'tenant "vision-lab": anchor_day has to be a whole number from 1 to 31.',
        ),
        (
            'name = "Vision Lab"',
            'name = "Vision Lab"\ntax_rate = 19.0',
            'tenant "vision-lab": tax_rate is 19.0 without quotes, which is not exact; write "19.0" as text.',
        ),
        (
            'name = "Vision Lab"',
            'name = "Vision Lab"\ntax_rate = "101"',
            'tenant "vision-lab": tax_rate is 101; it is a percentage from 0 to 100 with at most three decimals.',
        ),
        (
            'plan = "standard"',
            'plan = "premium"',
            (
                "tenant \"vision-lab\": plan is 'premium', which neither the file nor the database has; "
                "known: standard."
            ),
        ),
        (
            'plan = "standard"\n',
            "",
            'tenant "vision-lab": plan_from says from when a plan applies, but `plan` is missing.',
        ),
        (
            "plan_from = 2026-01-01",
            "plan_from = 2026-01-01T12:00:00",
            (
                'tenant "vision-lab": plan_from has to be a whole second with its offset from UTC, '
                "like 2017-01-01T12:00:00Z."
            ),
        ),
        (
            '{ cluster = "philly", account',
            '{ cluster = "atlas", account',
            (
                "tenant \"vision-lab\", account 1 (atlas/vision): cluster is 'atlas', which neither the file nor "
                "the database has; known: philly."
            ),
        ),
        (', account = "vision"', "", 'tenant "vision-lab", account 1: account is missing.'),
        (
            'account = "vision" }',
            'account = "vision", since = 2026-02-01, until = 2026-01-01 }',
            'tenant "vision-lab", account 1 (philly/vision):',
        ),
        (
            ACCOUNTS,
            f'{ACCOUNTS}\n[[tenant.member]]\nemail = "ann"\nrole = "owner"',
            "tenant \"vision-lab\", member 1: email is 'ann': Enter a valid email address.",
        ),
        (
            ACCOUNTS,
            f'{ACCOUNTS}\n[[tenant.member]]\nemail = "ann@vision.example"\nrole = "king"',
            "tenant \"vision-lab\", member 1: role is 'king'; allowed: owner, billing, viewer, member.",
        ),
        (ACCOUNTS, f"{ACCOUNTS}\n{PHILLY}", 'tenant "vision-lab" stands in the file twice.'),
        (
            "[[cluster]]",
            '[seller]\nemail = "x"\n[[cluster]]',
            "seller: email is 'x': Enter a valid email address.",
        ),
        (
            "[[cluster]]",
            '[seller]\niban = "DE02"\n[[cluster]]',
            "seller: name is missing; invoices begin with it.",
        ),
        ("[[cluster]]", "cluster ==", "This is not TOML: "),
        ("2026-01-01", "2026-02-30", "This is not TOML: "),
    ],
)
def test_a_mistake_is_told_and_nothing_is_kept(op: Op, original: str, instead: str, sentence: str) -> None:
    assert original in PHILLY
    errors = op.is_refused(PHILLY.replace(original, instead, 1))
    assert [line for line in errors if line.startswith(sentence)], errors
    models = (Cluster, Plan, Price, Tenant, Subscription)
    assert [model.objects.count() for model in models] == [0, 0, 0, 0, 0]


def test_all_mistakes_are_told_at_once(op: Op) -> None:
    wrong = PHILLY.replace('"import"', '"magic"').replace('"USD"', '"EURO"').replace('"vision-lab"', '"a b"')
    assert [line.partition(":")[0] for line in op.is_refused(wrong)] == [
        'cluster "philly"',
        'plan "standard"',
        'tenant "a b"',
    ]


def test_with_json_the_refusal_is_one_object_too(op: Op, capsys: pytest.CaptureFixture[str]) -> None:
    op.file.write_text(PHILLY.replace('"USD"', '"EURO"'))
    with pytest.raises(Exception, match="EURO"):
        run_to_stdout("apply", str(op.file), "--json")
    answer = json.loads(capsys.readouterr().out)
    assert answer["errors"][-1] == "Nothing was changed."


def run_to_stdout(*arguments: str) -> None:
    from django.core.management import call_command

    call_command(*arguments)


def test_a_file_that_is_not_there_or_not_text(op: Op, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"absent\.toml cannot be read: No such file or directory\."):
        run("apply", str(tmp_path / "absent.toml"))
    op.file.write_bytes(b"name = '\xff'")
    with pytest.raises(Exception, match=r"site\.toml is not UTF-8 text, as TOML has to be\."):
        run("apply", str(op.file))


def test_two_tenants_cannot_own_an_account_from_the_same_moment(op: Op) -> None:
    robotics = f'[[tenant]]\nslug = "robotics"\nname = "Robotics"\n{ACCOUNTS}\n'
    assert op.is_refused(PHILLY + robotics) == [
        (
            'tenant "vision-lab", account 1 (philly/vision): tenant "vision-lab", account 1 (philly/vision) and '
            'tenant "robotics", account 1 (philly/vision) begin at the same moment; say with `since` from when '
            "the later one owns it."
        )
    ]


def test_a_new_owner_cannot_displace_one_whom_the_file_does_not_mention(op: Op) -> None:
    op.applies(PHILLY)
    robotics = f'[[tenant]]\nslug = "robotics"\nname = "Robotics"\n{ACCOUNTS}\n'
    (error,) = op.is_refused(robotics)
    assert "philly/vision belongs to vision-lab from the beginning, for ever" in error


def test_a_price_in_use_is_ended_or_corrected_with_a_reason(op: Op) -> None:
    op.applies(PHILLY)
    ingest(builders.a_cluster("philly"), a_job())
    assert op.is_refused(PHILLY.replace("1.10", "1.20")) == [
        (
            'plan "standard", price 1: Usage has been rated by the price gpu-hour gpu_model=a100 at 1.1 from '
            "2026-01-01. To change what it costs from a day on, give it an `until` and add a new price from that day "
            "on. To correct its amount on all of its days, give the reason as `correction`. Nothing else of it can "
            "change."
        )
    ]


def test_a_second_price_for_the_same_usage_has_to_wait_for_the_first_to_end(op: Op) -> None:
    op.applies(PHILLY)
    second = PHILLY.replace(
        "[[tenant]]", f"[[plan.price]]\n{PRICE.replace('2026-01', '2026-03')}\n[[tenant]]"
    )
    assert op.is_refused(second) == [
        (
            'plan "standard", price 2: The price gpu-hour gpu_model=a100 at 1.1 from 2026-03-01 overlaps the price '
            "gpu-hour gpu_model=a100 at 1.1 from 2026-01-01 without an end: end the earlier one with `until` where "
            "the later one begins."
        )
    ]


def test_what_a_version_in_use_charges_stays(op: Op) -> None:
    op.applies(PHILLY)
    ingest(builders.a_cluster("philly"), a_job())
    assert op.is_refused(PHILLY.replace('["gpu"]', '["gpu", "cpu"]')) == [
        (
            'plan "standard": Usage has been rated by plan standard from 2026-01-01, so what it charges stays gpu: '
            "give the plan a new version with a later `from`."
        )
    ]


def test_the_currency_of_a_plan_in_use_stays(op: Op) -> None:
    op.applies(PHILLY)
    ingest(builders.a_cluster("philly"), a_job())
    assert op.is_refused(PHILLY.replace("USD", "EUR")) == [
        'plan "standard": Usage has been rated by plan standard in USD: make another plan for EUR.'
    ]


def test_of_several_versions_the_file_says_which(op: Op) -> None:
    op.applies(PHILLY)
    op.applies('[[plan]]\nname = "standard"\ncurrency = "USD"\ncharges = []\nfrom = 2026-06-01\n')
    later = PHILLY.replace("from = 2026-01-01\n\n", "from = 2026-02-01\n\n")
    assert op.is_refused(later) == [
        (
            'plan "standard": it has several versions: say with `from` which one is meant (2026-01-01, 2026-06-01), '
            "or a new day."
        )
    ]
    assert op.applies(PHILLY) == ["Nothing to change."], "the earliest price says which"


def test_a_price_cannot_begin_before_its_plan(op: Op) -> None:
    op.applies(PHILLY)
    assert op.is_refused(PHILLY.replace("from = 2026-01-01\n\n", "from = 2025-01-01\n\n")) == [
        (
            'plan "standard": a price begins on 2025-01-01, before the plan does on 2026-01-01: say with `from` '
            "from when this version of it applies."
        )
    ]


def test_another_plan_needs_the_day_on_which_it_begins(op: Op) -> None:
    op.applies(PHILLY)
    premium = PHILLY.replace('"standard"', '"premium"').replace("plan_from = 2026-01-01\n", "")
    assert op.is_refused(premium) == [
        'tenant "vision-lab": it is on plan standard; say with plan_from from when plan premium applies.'
    ]
    early = PHILLY.replace('"standard"', '"premium"').replace(
        "plan_from = 2026-01-01", "plan_from = 2025-12-01"
    )
    assert op.is_refused(early) == [
        (
            'tenant "vision-lab": vision-lab is on plan standard from 2026-01-01 00:00 UTC on; say from when after '
            "that plan premium applies."
        )
    ]


def test_a_currency_changes_only_where_a_billing_period_begins(op: Op) -> None:
    op.applies(PHILLY)
    euro = PHILLY.replace('"standard"', '"euro"').replace('"USD"', '"EUR"')
    assert op.is_refused(euro.replace("plan_from = 2026-01-01", "plan_from = 2026-04-15")) == [
        (
            'tenant "vision-lab": vision-lab would change from USD to EUR inside a billing period: a currency '
            "changes where one begins, such as 2026-04-01 00:00 UTC."
        )
    ]
    op.applies(euro.replace("plan_from = 2026-01-01", "plan_from = 2026-04-01"))
    assert Subscription.objects.count() == 2


def test_the_same_price_twice_in_one_file(op: Op) -> None:
    twice = PHILLY.replace("[[plan.price]]", f"[[plan.price]]\n{PRICE}[[plan.price]]")
    assert op.is_refused(twice) == [
        'plan "standard": two of its prices have the same meter, `where`, `hours` and `from`; leave one out.'
    ]
