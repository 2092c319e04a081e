"""Who issues invoices, and their series of numbers."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q

from portal.core.audit import track
from portal.core.tenants.electronic_address import electronic_address
from portal.core.tenants.models import COUNTRY, Corrections, ZeroInvoices

# A number is a part of addresses and of names of files.
PREFIX = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z",
    "write letters, digits and . _ - only, the first one a notice or a digit.",
)

PHONE = RegexValidator(r"(?:[^0-9]*[0-9]){3}", "write a telephone number with at least three digits.")


@track()
class Seller(models.Model):
    """Who issues the invoices; copied onto each when it is issued."""

    code = models.SlugField(unique=True, default="default")
    name = models.CharField(max_length=200)
    address = models.TextField(
        blank=True, help_text="Line by line: without post code and city where they stand below."
    )
    postcode = models.CharField("post code", max_length=20, blank=True)
    city = models.CharField(max_length=100, blank=True)
    country = models.CharField(
        max_length=2, blank=True, validators=[COUNTRY], help_text="ISO 3166-1, two letters: DE, US."
    )
    vat_id = models.CharField("VAT id", max_length=40, blank=True)
    registration = models.CharField(max_length=200, blank=True)
    email = models.EmailField(blank=True)
    contact_name = models.CharField(
        max_length=100,
        blank=True,
        help_text="Who answers questions about invoices: a person or a department.",
    )
    contact_phone = models.CharField(max_length=40, blank=True, validators=[PHONE])
    electronic_address = models.CharField(
        max_length=100,
        blank=True,
        validators=[electronic_address],
        help_text="As scheme:identifier, such as 9930:DE811234565; empty: the e-mail.",
    )
    iban = models.CharField("IBAN", max_length=42, blank=True)
    bic = models.CharField("BIC", max_length=11, blank=True)
    invoice_prefix = models.CharField(
        max_length=12,
        default="INV",
        validators=[PREFIX],
        help_text="What the numbers of invoices begin with.",
    )
    credit_prefix = models.CharField(
        max_length=12,
        default="CN",
        validators=[PREFIX],
        help_text="What the numbers of credit notes begin with.",
    )
    tax_name = models.CharField(max_length=40, default="VAT")
    corrections = models.CharField(
        max_length=12,
        choices=Corrections.choices,
        default=Corrections.NEXT_INVOICE,
        help_text="Where usage goes that becomes known, or changes, after its invoice; a tenant may differ.",
    )

    zero_invoices = models.CharField(
        max_length=5,
        choices=ZeroInvoices.choices,
        default=ZeroInvoices.SKIP,
        help_text="What becomes of a period without use or charges; a tenant may differ.",
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(country="") | Q(country__regex="^[A-Z]{2}$"), name="seller_country_is_two_letters"
            ),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{prefix}__regex": r"^[A-Za-z0-9][A-Za-z0-9._-]*$"}),
                    name=f"{prefix}_stands_in_an_address",
                )
                for prefix in ("invoice_prefix", "credit_prefix")
            ),
            models.CheckConstraint(
                condition=Q(electronic_address="") | Q(electronic_address__regex=r"^[0-9A-Z]+:\S+$"),
                name="seller_electronic_address_has_a_scheme",
            ),
            models.CheckConstraint(
                condition=Q(zero_invoices__in=ZeroInvoices.values), name="seller_zero_invoices_are_known"
            ),
            models.CheckConstraint(
                condition=~Q(credit_prefix=F("invoice_prefix")), name="seller_numbers_credit_notes_apart"
            ),
            models.CheckConstraint(
                condition=Q(corrections__in=Corrections.values), name="seller_corrections_are_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name


@track()
class TaxRate(models.Model):
    """What a country, or a state of it, takes of a category from a day on, until the next rate begins."""

    country = models.CharField(
        max_length=2, validators=[COUNTRY], help_text="ISO 3166-1, two letters: DE, US."
    )
    region = models.CharField(
        "state", max_length=10, blank=True, help_text="Empty: of the whole country. CA for California."
    )
    category = models.SlugField(max_length=30, default="standard", help_text="As tenants name it.")
    rate = models.DecimalField(
        max_digits=6, decimal_places=3, validators=[MinValueValidator(0)], help_text="Per cent."
    )
    since = models.DateField(help_text="The first day on which a service that ends then is taxed so.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["country", "region", "category", "since"], name="one_tax_rate_begins_on_a_day"
            ),
            models.CheckConstraint(condition=Q(rate__range=(0, 100)), name="tax_rate_is_a_percentage"),
            models.CheckConstraint(
                condition=Q(country__regex="^[A-Z]{2}$"), name="tax_rate_country_is_two_letters"
            ),
        ]

    def __str__(self) -> str:
        where = f"{self.country}-{self.region}" if self.region else self.country
        return f"{where} {self.category} from {self.since}"


class InvoiceSeries(models.Model):
    """A gapless run of numbers. Its row is locked by the transaction that issues."""

    name = models.CharField(max_length=40, unique=True)
    last_number = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name_plural = "invoice series"

    def __str__(self) -> str:
        return self.name
