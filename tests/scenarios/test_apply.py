"""Op keeps the site in one TOML file and applies it whenever she has edited it."""

from __future__ import annotations

from pathlib import Path

import pytest

from billing.models import Price, Seller, Subscription
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Membership, Ownership, Project, Tenant, User
from tests import builders
from tests.builders import a_job, at, ingest
from tests.scenarios.configuring import PHILLY, Op, gpu_seconds, owed, run, run_json

pytestmark = pytest.mark.django_db


@pytest.fixture
def op(tmp_path: Path) -> Op:
    return Op(tmp_path)


def test_the_first_apply_says_all_that_is_new(op: Op) -> None:
    assert op.applies(PHILLY) == [
        "cluster philly: new (kind import, timezone UTC)",
        "plan standard: new (currency USD)",
        "plan standard from 2026-01-01: new (charges gpu)",
        (
            "plan standard from 2026-01-01, price of gpu-hour gpu_model=a100 from 2026-01-01: "
            "new (unit price 1.1, place 1)"
        ),
        (
            "tenant vision-lab: new (name Vision Lab, timezone UTC, anchor_day 1, language en, tax_rate 0, "
            "payment_terms_days 14)"
        ),
        "account philly/vision: new",
        "account philly/vision of vision-lab: new (project vision)",
        "subscription of vision-lab: new (plan standard, since 2026-01-01 00:00:00 UTC)",
        "Usage rated again: 1 account.",
    ]


def test_the_second_apply_changes_nothing_and_writes_no_history(op: Op) -> None:
    op.applies(PHILLY)
    events = AuditEntry.objects.count()
    assert op.applies(PHILLY) == ["Nothing to change."]
    assert run_json("apply", str(op.file)) == {
        "changed": False,
        "dry_run": False,
        "changes": [],
        "rated_accounts": 0,
    }
    assert AuditEntry.objects.count() == events


def test_a_dry_run_says_the_same_and_keeps_nothing(op: Op) -> None:
    previewed = op.applies(PHILLY, "--dry-run")
    assert previewed[-1] == "This was a preview: nothing was changed."
    assert (Tenant.objects.count(), Price.objects.count(), Ownership.objects.count()) == (0, 0, 0)
    assert op.applies(PHILLY) == previewed[:-1]


def test_an_edit_is_told_as_before_and_after(op: Op) -> None:
    op.applies(PHILLY)
    assert op.applies(PHILLY.replace('"Vision Lab"', '"Vision Laboratory"\nanchor_day = 15')) == [
        "tenant vision-lab: name Vision Lab -> Vision Laboratory",
        "tenant vision-lab: anchor_day 1 -> 15",
    ]


def test_what_the_file_does_not_mention_stays_as_it_is(op: Op) -> None:
    op.applies(PHILLY + 'tax_rate = "19"\naddress = ["Hafenstr. 1", "20457 Hamburg"]\n')
    assert op.applies(PHILLY) == ["Nothing to change."]
    assert op.applies('[[cluster]]\nname = "atlas"\ntimezone = "Europe/Berlin"\n') == [
        "cluster atlas: new (kind import, timezone Europe/Berlin)"
    ]
    lab = Tenant.objects.get(slug="vision-lab")
    assert (str(lab.tax_rate), lab.address) == ("19.000", "Hafenstr. 1\n20457 Hamburg")


def test_the_seller_and_everything_about_a_tenant_can_stand_in_the_file(op: Op) -> None:
    op.applies(
        """
        [seller]
        name = "Northern Compute GmbH"
        address = ["Hafenstraße 1", "20457 Hamburg"]
        vat_id = "DE123456789"
        iban = "DE02120300000000202051"
        invoice_prefix = "NC"
        [[tenant]]
        slug = "bio"
        name = "Institut für Biophysik"
        timezone = "Europe/Berlin"
        anchor_day = 31
        address = "Am Turm 2\\n14482 Potsdam"
        vat_id = "DE987654321"
        email = "rechnung@bio.example"
        purchase_order = "PO-77"
        tax_rate = "19.5"
        payment_terms_days = 30
        """
    )
    seller = Seller.objects.get()
    assert (seller.name, seller.address) == ("Northern Compute GmbH", "Hafenstraße 1\n20457 Hamburg")
    assert (seller.vat_id, seller.invoice_prefix, seller.tax_name) == ("DE123456789", "NC", "VAT")
    bio = Tenant.objects.get(slug="bio")
    assert (bio.timezone, bio.anchor_day, bio.address) == ("Europe/Berlin", 31, "Am Turm 2\n14482 Potsdam")
    assert (bio.purchase_order, str(bio.tax_rate), bio.payment_terms_days) == ("PO-77", "19.500", 30)


def test_members_come_without_a_password_and_the_file_says_so(op: Op) -> None:
    ann = '[[tenant.member]]\nemail = "Ann@vision.example"\nrole = "member"\n'
    changes = op.applies(PHILLY + ann)
    assert (
        "person ann@vision.example: new (password none yet: they set one with 'Forgot your password?' "
        "on the sign-in page)" in changes
    )
    assert "member ann@vision.example of vision-lab: new (role member)" in changes
    assert not User.objects.get().has_usable_password()
    assert op.applies(PHILLY + ann.replace('member"', 'billing"')) == [
        "member ann@vision.example of vision-lab: role member -> billing"
    ]
    assert Membership.objects.get().role == "billing"


def test_history_says_which_file_it_was(op: Op) -> None:
    op.applies(PHILLY)
    entry = AuditEntry.objects.of_table(Price).get()
    assert (entry.who, entry.through) == ("apply site.toml", "file site.toml")


def test_dates_are_midnights_of_the_tenants_zone(op: Op) -> None:
    op.applies(PHILLY.replace('name = "Vision Lab"', 'name = "Vision Lab"\ntimezone = "Europe/Berlin"'))
    assert Subscription.objects.get().since == at("2025-12-31 23:00")


def test_without_plan_from_a_plan_applies_from_its_beginning(op: Op) -> None:
    op.applies(
        PHILLY.replace("plan_from = 2026-01-01\n", "").replace("from = 2026-01-01", "from = 2025-06-01")
    )
    assert Subscription.objects.get().since == at("2025-06-01")


def test_an_account_can_be_handed_over_in_the_middle_of_a_job(op: Op) -> None:
    """Ben's job of two hours belongs to Vision until 10:30:01, then to Robotics: split to the second."""
    op.applies(PHILLY)
    ingest(builders.a_cluster("philly"), a_job(started="2026-03-02 10:00", ended="2026-03-02 12:00"))
    assert gpu_seconds("vision-lab") == 7200

    robotics = PHILLY + (
        '[[tenant]]\nslug = "robotics"\nname = "Robotics"\nplan = "standard"\nplan_from = 2026-01-01\n'
        'accounts = [{ cluster = "philly", account = "vision", since = 2026-03-02T10:30:01Z }]\n'
    )
    changes = op.applies(robotics)

    assert "account philly/vision of vision-lab: until nothing -> 2026-03-02 10:30:01 UTC" in changes
    assert "account philly/vision of robotics: new (project vision, since 2026-03-02 10:30:01 UTC)" in changes
    assert (gpu_seconds("vision-lab"), gpu_seconds("robotics")) == (1801, 5399)
    assert op.applies(robotics) == ["Nothing to change."]


def test_the_borders_of_an_ownership_can_be_moved(op: Op) -> None:
    op.applies(PHILLY)
    ingest(builders.a_cluster("philly"), a_job(started="2026-03-01 00:00", ended="2026-03-03 00:00"))
    narrowed = PHILLY.replace('"vision" }]', '"vision", since = 2026-03-02, until = 2026-04-01 }]')
    assert op.applies(narrowed) == [
        "account philly/vision of vision-lab: since nothing -> 2026-03-02 00:00:00 UTC",
        "account philly/vision of vision-lab: until nothing -> 2026-04-01 00:00:00 UTC",
        "Usage rated again: 1 account.",
    ]
    assert gpu_seconds("vision-lab") == 86_400
    assert op.applies(PHILLY) == ["Nothing to change."], "bounds that the file leaves out stay"


def test_a_later_change_at_the_shell_is_no_conflict_with_the_file(op: Op) -> None:
    op.applies(PHILLY)
    builders.a_tenant("robotics")
    run("assign_account", "philly", "vision", "robotics", "--since", "2026-05-01")
    assert op.applies(PHILLY) == ["Nothing to change."]


def test_accounts_can_change_their_project(op: Op) -> None:
    op.applies(PHILLY)
    op.applies(
        PHILLY.replace(
            '[{ cluster = "philly", account = "vision" }]',
            '[{ cluster = "philly", account = "vision" },\n'
            ' { cluster = "philly", account = "vision", project = "Thesis", since = 2026-04-01 }]',
        )
    )
    rows = Ownership.objects.order_by("pk").values_list("project__name", "since", "until")
    assert list(rows) == [("vision", None, at("2026-04-01")), ("Thesis", at("2026-04-01"), None)]
    assert Project.objects.count() == 2


def test_a_price_ends_and_another_begins_inside_the_month(op: Op) -> None:
    """Ten GPU-hours before 16 March at 1.10, ten after it at 1.50: 11 and 15 dollars."""
    op.applies(PHILLY)
    ingest(builders.a_cluster("philly"), a_job(started="2026-03-15 14:00", ended="2026-03-16 10:00"))
    assert owed("vision-lab") == {"1.1": "22"}

    dearer = PHILLY.replace(
        "from = 2026-01-01\n\n[[tenant]]",
        "from = 2026-01-01\nuntil = 2026-03-16\n\n"
        '[[plan.price]]\nmeter = "gpu-hour"\nwhere = { gpu_model = "a100" }\nunit_price = "1.50"\n'
        "from = 2026-03-16\n\n[[tenant]]",
    )
    assert op.applies(dearer) == [
        (
            "plan standard from 2026-01-01, price of gpu-hour gpu_model=a100 from 2026-01-01: "
            "until nothing -> 2026-03-16"
        ),
        (
            "plan standard from 2026-01-01, price of gpu-hour gpu_model=a100 from 2026-03-16: "
            "new (unit price 1.5, place 2)"
        ),
        "Usage rated again: 1 account.",
    ]
    assert owed("vision-lab") == {"1.1": "11", "1.5": "15"}
    assert op.applies(dearer) == ["Nothing to change."]


def test_a_price_that_nothing_was_rated_by_can_be_corrected(op: Op) -> None:
    op.applies(PHILLY)
    changes = op.applies(PHILLY.replace("1.10", "1.20"))
    assert changes[0].endswith("gpu-hour gpu_model=a100 from 2026-01-01: unit price 1.1 -> 1.2")


def test_a_plan_that_appears_twice_with_other_days_has_two_versions(op: Op) -> None:
    """From April on memory is charged as well: 4 GiB for an hour at 0.01 is 4 cents."""
    versions = PHILLY.replace(
        "[[tenant]]",
        '[[plan]]\nname = "standard"\ncurrency = "USD"\ncharges = ["gpu", "memory"]\nfrom = 2026-04-01\n'
        '[[plan.price]]\nmeter = "gpu-hour"\nunit_price = "1.10"\n'
        '[[plan.price]]\nmeter = "memory-gib-hour"\nunit_price = "0.01"\n\n[[tenant]]',
    )
    op.applies(versions)
    assert op.applies(versions) == ["Nothing to change."]
    cluster = builders.a_cluster("philly")
    ingest(cluster, a_job(started="2026-03-31 23:00", ended="2026-04-01 01:00", memory_mib=4096))
    from billing.models import PeriodTotal

    verdicts = PeriodTotal.objects.filter(resource="memory").order_by("verdict")
    assert [(row.verdict, int(row.units)) for row in verdicts] == [("charged", 4096 * 3600)]


def test_of_equally_specific_prices_the_first_in_the_file_wins_even_after_a_swap(op: Op) -> None:
    cheap = '[[plan.price]]\nmeter = "gpu-hour"\nwhere = { qos = "low" }\nunit_price = "0.50"\nfrom = 2026-01-01\n'
    dear = '[[plan.price]]\nmeter = "gpu-hour"\nwhere = { queue = "fast" }\nunit_price = "3"\nfrom = 2026-01-01\n'
    head, tail = PHILLY.split("[[plan.price]]")[0], "\n[[tenant]]" + PHILLY.split("[[tenant]]")[1]
    op.applies(head + cheap + dear + tail)
    ingest(builders.a_cluster("philly"), a_job(qos="low", queue="fast"))
    assert owed("vision-lab") == {"0.5": "0.5"}
    op.applies(head + dear + cheap + tail)
    assert owed("vision-lab") == {"3": "3"}


def test_a_tenant_moves_to_another_plan(op: Op) -> None:
    op.applies(PHILLY)
    ingest(builders.a_cluster("philly"), a_job(started="2026-03-31 22:00", ended="2026-04-01 01:00"))
    moved = PHILLY.replace(
        'plan = "standard"\nplan_from = 2026-01-01', 'plan = "premium"\nplan_from = 2026-04-01'
    ) + (
        '[[plan]]\nname = "premium"\ncurrency = "USD"\ncharges = ["gpu"]\n'
        '[[plan.price]]\nmeter = "gpu-hour"\nunit_price = "9"\nfrom = 2026-01-01\n'
    )
    changes = op.applies(moved)
    assert "subscription of vision-lab: until nothing -> 2026-04-01 00:00:00 UTC" in changes
    assert owed("vision-lab") == {"1.1": "2.2", "9": "9"}
    assert op.applies(moved) == ["Nothing to change."]
