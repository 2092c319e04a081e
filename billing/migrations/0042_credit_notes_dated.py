import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0041_used_plans_keep_their_currency"),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name="invoice",
            trigger=pgtrigger.compiler.Trigger(
                name="credit_note_is_no_older_than_its_invoice",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.original_id IS NOT NULL)",
                    func="\nIF NEW.issued_on < (SELECT issued_on FROM billing_invoice WHERE id = NEW.original_id) THEN\n    RAISE EXCEPTION 'Credit note % would be older than its invoice: date it on a later day.', NEW.number;\nEND IF;\nRETURN NEW;\n",
                    hash="02990e9849868012d7c23a43ca56691877a27262",
                    operation="UPDATE",
                    pgid="pgtrigger_credit_note_is_no_older_than_its_invoice_0537c",
                    table="billing_invoice",
                    when="BEFORE",
                ),
            ),
        ),
    ]
