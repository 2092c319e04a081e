"""An approval is of one currency; what stands beside the invoice in another is looked at with it."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0031_archives"),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name="invoice",
            name="parked_invoice_is_issued_with_approval",
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="invoice",
            trigger=pgtrigger.compiler.Trigger(
                name="parked_invoice_is_issued_with_approval",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.kind <> 'credit-note')",
                    func="\nIF EXISTS (SELECT FROM billing_parking p WHERE p.period_id = NEW.period_id\n           AND (p.state <> 'approved' OR (p.currency = NEW.currency AND p.total < NEW.total))) THEN\n    RAISE EXCEPTION 'Invoice % is beyond what was approved: approve it first.', NEW.number;\nEND IF;\nRETURN NEW;\n",
                    hash="b99b6e9b4cc53fadce5d8bfd57ac2606fe84a229",
                    operation="UPDATE",
                    pgid="pgtrigger_parked_invoice_is_issued_with_approval_33e0d",
                    table="billing_invoice",
                    when="BEFORE",
                ),
            ),
        ),
    ]
