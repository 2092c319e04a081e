"""Who paid by transfer can be erased with the tenant, so nothing else keeps it: neither the history nor a memo."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


MEMOS = """
ALTER TABLE billing_creditentry DISABLE TRIGGER pgtrigger_credit_is_append_only_5ec08;
UPDATE billing_creditentry e SET memo = left(memo, position(' from ' IN memo) - 1)
WHERE memo LIKE 'Transfer of % from %' AND EXISTS (SELECT FROM billing_transferpart p WHERE p.credit_id = e.id);
ALTER TABLE billing_creditentry ENABLE TRIGGER pgtrigger_credit_is_append_only_5ec08;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0057_credit_on_the_document"),
    ]

    operations = [
        migrations.RunSQL(MEMOS, migrations.RunSQL.noop),
        pgtrigger.migrations.RemoveTrigger(
            model_name="transfer",
            name="transfer_says_what_the_bank_said",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="transfer",
            name="insert_insert",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="transfer",
            name="update_update",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="transfer",
            name="delete_delete",
        ),
        migrations.RemoveField(
            model_name="transferevent",
            name="end_to_end",
        ),
        migrations.RemoveField(
            model_name="transferevent",
            name="payer",
        ),
        migrations.RemoveField(
            model_name="transferevent",
            name="payer_iban",
        ),
        migrations.RemoveField(
            model_name="transferevent",
            name="raw",
        ),
        migrations.RemoveField(
            model_name="transferevent",
            name="reference",
        ),
        migrations.RemoveField(
            model_name="transferevent",
            name="text",
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="transfer",
            trigger=pgtrigger.compiler.Trigger(
                name="transfer_says_what_the_bank_said",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF (NEW.key, NEW.account, NEW.amount, NEW.currency, NEW.booked_on, NEW.bank_reference, NEW.reversal) IS DISTINCT FROM\n   (OLD.key, OLD.account, OLD.amount, OLD.currency, OLD.booked_on, OLD.bank_reference, OLD.reversal) THEN\n    RAISE EXCEPTION 'What the bank said of a transfer never changes.';\nEND IF;\nIF (NEW.payer, NEW.payer_iban, NEW.text, NEW.reference, NEW.end_to_end, NEW.raw) IS DISTINCT FROM\n   (OLD.payer, OLD.payer_iban, OLD.text, OLD.reference, OLD.end_to_end, OLD.raw)\n   AND ((NEW.payer, NEW.payer_iban, NEW.text, NEW.reference, NEW.end_to_end, NEW.raw) <> ('', '', '', '', '', '')\n        OR NEW.state IN ('new', 'waiting')\n        OR EXISTS (SELECT FROM billing_transferpart p LEFT JOIN billing_archive a ON a.tenant_id = p.tenant_id\n                   WHERE p.transfer_id IN (NEW.id, NEW.undoes_id) AND a.erased_at IS NULL)) THEN\n    RAISE EXCEPTION 'What the bank said of a transfer never changes: who paid is erased with the tenant.';\nEND IF;\nRETURN NEW;\n",
                    hash="bb3e2030f3bb209964d4431f6c641b31a92c7adb",
                    operation="UPDATE",
                    pgid="pgtrigger_transfer_says_what_the_bank_said_4bdc9",
                    table="billing_transfer",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="transfer",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_transferevent" ("account", "amount", "bank_reference", "booked_on", "currency", "decided_at", "decided_by", "id", "key", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reversal", "state", "statement_id", "undoes_id", "why") VALUES (NEW."account", NEW."amount", NEW."bank_reference", NEW."booked_on", NEW."currency", NEW."decided_at", NEW."decided_by", NEW."id", NEW."key", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."reversal", NEW."state", NEW."statement_id", NEW."undoes_id", NEW."why"); RETURN NULL;',
                    hash="429156a76ecbce8e6050dee9e59c1db1fcb092b3",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_f305f",
                    table="billing_transfer",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="transfer",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."account" IS DISTINCT FROM (NEW."account") OR OLD."amount" IS DISTINCT FROM (NEW."amount") OR OLD."bank_reference" IS DISTINCT FROM (NEW."bank_reference") OR OLD."booked_on" IS DISTINCT FROM (NEW."booked_on") OR OLD."currency" IS DISTINCT FROM (NEW."currency") OR OLD."decided_at" IS DISTINCT FROM (NEW."decided_at") OR OLD."decided_by" IS DISTINCT FROM (NEW."decided_by") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."key" IS DISTINCT FROM (NEW."key") OR OLD."reversal" IS DISTINCT FROM (NEW."reversal") OR OLD."state" IS DISTINCT FROM (NEW."state") OR OLD."statement_id" IS DISTINCT FROM (NEW."statement_id") OR OLD."undoes_id" IS DISTINCT FROM (NEW."undoes_id") OR OLD."why" IS DISTINCT FROM (NEW."why"))',
                    func='INSERT INTO "billing_transferevent" ("account", "amount", "bank_reference", "booked_on", "currency", "decided_at", "decided_by", "id", "key", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reversal", "state", "statement_id", "undoes_id", "why") VALUES (NEW."account", NEW."amount", NEW."bank_reference", NEW."booked_on", NEW."currency", NEW."decided_at", NEW."decided_by", NEW."id", NEW."key", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."reversal", NEW."state", NEW."statement_id", NEW."undoes_id", NEW."why"); RETURN NULL;',
                    hash="4cc5f31238f5752d29b20a06488cc747b9431cb4",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_8b700",
                    table="billing_transfer",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="transfer",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_transferevent" ("account", "amount", "bank_reference", "booked_on", "currency", "decided_at", "decided_by", "id", "key", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reversal", "state", "statement_id", "undoes_id", "why") VALUES (OLD."account", OLD."amount", OLD."bank_reference", OLD."booked_on", OLD."currency", OLD."decided_at", OLD."decided_by", OLD."id", OLD."key", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."reversal", OLD."state", OLD."statement_id", OLD."undoes_id", OLD."why"); RETURN NULL;',
                    hash="61234e5612b61cb6fbaebc5ef43c26db982674e4",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_4b051",
                    table="billing_transfer",
                    when="AFTER",
                ),
            ),
        ),
    ]
