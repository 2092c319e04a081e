"""What a tenant sees of the meters that its operator declared: on the overview, an invoice, and behind its line."""

from __future__ import annotations

import pytest

from clusters.models import Cluster
from portal.core.tenants.models import Tenant, User
from tests import builders
from tests.stories import close, invoice_of
from tests.sums import a_gateway, a_sum, a_user_of_tokens, push
from tests.web.house import page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db


@pytest.fixture
def gateway() -> Cluster:
    return a_gateway()


@pytest.fixture
def vision(gateway: Cluster) -> Tenant:
    return a_user_of_tokens(gateway)


@pytest.fixture
def ann(vision: Tenant) -> User:
    return builders.a_person("ann@vision.example", vision)


def test_the_overview_tells_quantities_in_their_unit(gateway: Cluster, ann: User) -> None:
    push(gateway, a_sum("1", 12_500_000), a_sum("2", 1_000_000, dimensions={"direction": "output"}))
    text = words(page(ann, "/t/vision-lab/?period=2026-03-01"))
    assert "LLM tokens direction=input, model=large 12.5 million tokens $7.50" in text
    assert "LLM tokens direction=output 1 million tokens $2.40" in text
    assert "Total 0.00 $9.90" in text


def test_what_no_price_covers_is_said_in_words(gateway: Cluster, ann: User) -> None:
    push(gateway, a_sum("1", 12_500_000, dimensions={"direction": "cached"}))
    text = words(page(ann, "/t/vision-lab/?period=2026-03-01"))
    assert "No price covers 12.5 million tokens (direction=cached) of vision." in text


def test_a_line_opens_to_its_sums(gateway: Cluster, vision: Tenant, ann: User) -> None:
    push(gateway, a_sum("large/10", 12_000_000), a_sum("large/11", 500_000, "2026-03-02T11"))
    close("2026-03")
    number = invoice_of(vision, "2026-03").number
    assert "12.5 million tokens" in words(page(ann, f"/t/vision-lab/invoices/{number}/"))
    text = words(page(ann, f"/t/vision-lab/invoices/{number}/lines/1/"))
    assert "2 sums add up to 12.5 million tokens, largest first." in text
    assert "large/10 ben 2 Mar 2026, 10:00:00 12 million tokens" in text
    assert "12.5 million tokens × $0.60 = $7.50, on the invoice $7.50" in text
    assert "large/10" not in words(page(ann, "/t/vision-lab/jobs/?period=2026-03-01"))
