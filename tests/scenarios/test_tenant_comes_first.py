"""Keys of tenants' tables begin with the tenant, or with a row of its own: so tables can be distributed by tenant.

What is unique over tenants, or is found before its tenant is known, stands below with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.db import connection

from tests.owner import as_owner

pytestmark = pytest.mark.django_db

EVERYBODYS = "a term of the plan that is everybody's: it has no tenant"
AT_STRIPE = "Stripe's name of it: a webhook names no tenant"
BY_RECORD = "rating looks it up by its record, whoever its tenants are; the record's id says the partition"
IN_TIME = "few rows in the order of time, whoever's: a clock asks for them"

EXCEPTIONS = {
    "account_has_its_limits_once": "an account has one owner, and one row of limits, among all tenants",
    "account_has_one_owner_at_a_time": "an account has one owner among all tenants",
    "allowance_has_its_name_alone": EVERYBODYS,
    "api_apikey_prefix_key": "a key is found by its prefix, and says who its tenant is",
    "billing_billingaccount_customer_key": AT_STRIPE,
    "billing_checkoutsession_external_id_key": AT_STRIPE,
    "billing_invoice_number_b2bb8a8d_like": "as the key of numbers",
    "billing_invoice_number_key": "numbers are without gaps in a series that all tenants share",
    "billing_notice_key_key": "a mail is written once for its cause, which may be of no tenant",
    "billing_paymentattempt_external_id_key": AT_STRIPE,
    "billing_paymentdispute_external_id_key": AT_STRIPE,
    "billing_paymentrefund_external_id_key": AT_STRIPE,
    "billing_ratedjob_pkey": BY_RECORD,
    "billing_savedmethod_external_id_key": AT_STRIPE,
    "difference_is_kept_once": "an object at Stripe; whose it is may be unknown",
    "discount_has_its_name_alone": EVERYBODYS,
    "event_is_written_once_for_its_cause": "what happens to a cluster is of no tenant",
    "events_by_age": IN_TIME,
    "events_event_number_key": "the order of commits of all tenants",
    "events_without_a_number": IN_TIME,
    "fee_has_its_name_alone": EVERYBODYS,
    "jobs_by_end": "a few pages, by which monitoring finds what ended lately, of all tenants",
    "jobs_by_number": "operators look a job up by its number, whoever's it is",
    "lines_by_hand": "few rows, which a close asks for by their number",
    "membership_is_held_once": "people are not a tenant's: who signs in looks for their own",
    "one_price_per_selection_at_a_time": "a price of a plan, of which most are everybody's",
    "person_has_one_sign_up_waiting": "people are not a tenant's: who signs up has no tenant yet",
    "reservation_stands_once_per_key": "a job of a cluster asks by its key before its owner is looked up",
    "tenant_has_one_own_allowance_at_a_time": "terms of a version; there are as many as people enter",
    "tenant_has_one_own_commitment_at_a_time": "terms of a version; there are as many as people enter",
    "tenant_has_one_own_discount_at_a_time": "terms of a version; there are as many as people enter",
    "tenant_has_one_own_fee_at_a_time": "terms of a version; there are as many as people enter",
    "tenant_is_closed_once_in_a_run": "a close is of many tenants, and is read whole",
    "totals_that_others_pay": "few rows, which the tenant that pays is to find",
    "usage_is_rated_once": BY_RECORD,
    "version_has_one_commitment": EVERYBODYS,
    "waste_is_found_once": "a job ends once, no matter who owns it: a rule is the operator's, for all tenants",
}

HOT = {
    "billing_dailyusage", "billing_daytotal", "billing_invoice", "billing_invoiceline", "billing_periodjobs",
    "billing_periodtopjob", "billing_periodtotal", "billing_ratedjob", "billing_ratedusage", "billing_usageseries",
    "billing_wallettotal", "events_event",
}  # fmt: skip
"""Tables that grow with jobs, days or documents: of these every index counts, unique or not."""

INDEXES = """
SELECT t.relname, i.relname, pg_get_indexdef(i.oid, 1, true), x.indisprimary AND x.indnkeyatts = 1, EXISTS (
           SELECT FROM pg_constraint f JOIN pg_attribute n ON n.attrelid = f.confrelid AND n.attname = 'tenant_id'
           WHERE f.conrelid = t.oid AND f.contype = 'f' AND f.conkey[1] = x.indkey[0] AND x.indkey[0] <> 0)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
JOIN pg_attribute a ON a.attrelid = t.oid AND a.attname = 'tenant_id'
WHERE t.relnamespace = 'public'::regnamespace AND t.relkind IN ('r', 'p')
  AND NOT t.relispartition AND t.relname !~ '_[0-9]{4}_[0-9]{2}$'  -- nor a month that was detached
  AND (x.indisunique OR x.indisexclusion OR t.relname = ANY (%s))
"""


@dataclass(frozen=True)
class Index:
    table: str
    name: str
    first: str  # its first column or expression
    is_own_id: bool  # the primary key, of a single column
    is_of_a_row: bool  # begins with the id of a row that is one tenant's

    @property
    def is_tenants(self) -> bool:
        return self.first == "tenant_id" or self.first.startswith("int8range(tenant_id,")


def indexes() -> list[Index]:
    with connection.cursor() as cursor:
        cursor.execute(INDEXES, [sorted(HOT)])
        return [Index(*row) for row in cursor.fetchall()]


def test_keys_and_indexes_of_tenants_tables_begin_with_the_tenant() -> None:
    others = {
        f"{index.table}: {index.name} ({index.first})"
        for index in indexes()
        if not (index.is_tenants or index.is_own_id or index.is_of_a_row or index.name in EXCEPTIONS)
    }
    assert others == set()


def test_every_exception_is_one() -> None:
    needed = {i.name for i in indexes() if not (i.is_tenants or i.is_own_id or i.is_of_a_row)}
    assert EXCEPTIONS.keys() - needed == set()
    assert {index.table for index in indexes()} >= HOT


def test_a_key_that_begins_with_something_else_is_seen() -> None:
    with as_owner() as owner:
        owner.execute(
            "CREATE TABLE of_a_tenant (id bigint PRIMARY KEY, tenant_id bigint, day date, UNIQUE (day))"
        )
        others = {i.name for i in indexes() if not (i.is_tenants or i.is_own_id or i.is_of_a_row)}
        owner.execute("DROP TABLE of_a_tenant")
    assert others - EXCEPTIONS.keys() == {"of_a_tenant_day_key"}
