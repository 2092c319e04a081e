from django.apps import AppConfig

from clusters import absent_records


class BillingConfig(AppConfig):
    name = "billing"
    verbose_name = "Plans and invoices"

    def ready(self) -> None:
        absent_records.register("billing.sealed_months.month_files.SealedMonthFiles")
