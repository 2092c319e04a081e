from django.apps import AppConfig

from clusters import absent_records


class BillingConfig(AppConfig):
    name = "billing"
    verbose_name = "Plans and invoices"

    def ready(self) -> None:
        from billing.rating import reratings  # its messages are a model, which is there only now
        from portal.core.outbox import outbox

        outbox.FIND_WAITING.update(dict.fromkeys(reratings.TASKS, reratings.find_waiting))
        absent_records.register("billing.sealed_months.month_files.SealedMonthFiles")
