"""Accounts and clusters refuse to go while usage of theirs stands, instead of each record asking for them."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0007_sockets_without_address"),
    ]

    operations = [
        migrations.AlterField(
            model_name="usagerecord",
            name="account",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                to="clusters.account",
            ),
        ),
        migrations.AlterField(
            model_name="usagerecord",
            name="cluster",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                to="clusters.cluster",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="account",
            trigger=pgtrigger.compiler.Trigger(
                name="account_with_usage_is_kept",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF (TG_OP = 'DELETE' OR NEW.id <> OLD.id) AND EXISTS (SELECT 1 FROM clusters_usagerecord WHERE account_id = OLD.id)\nTHEN\n    RAISE EXCEPTION 'Usage of this account is recorded, so it is kept.' USING ERRCODE = 'foreign_key_violation';\nEND IF;\nRETURN NULL;\n",
                    hash="a68ed234d3d6879170dea25f1a7e1351b07c828c",
                    operation="DELETE OR UPDATE",
                    pgid="pgtrigger_account_with_usage_is_kept_39624",
                    table="clusters_account",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="cluster",
            trigger=pgtrigger.compiler.Trigger(
                name="cluster_with_usage_is_kept",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF (TG_OP = 'DELETE' OR NEW.id <> OLD.id) AND EXISTS (SELECT 1 FROM clusters_usagerecord WHERE cluster_id = OLD.id)\nTHEN\n    RAISE EXCEPTION 'Usage of this cluster is recorded, so it is kept.' USING ERRCODE = 'foreign_key_violation';\nEND IF;\nRETURN NULL;\n",
                    hash="4da6500a16050b27281981f00ca99c830d2b1497",
                    operation="DELETE OR UPDATE",
                    pgid="pgtrigger_cluster_with_usage_is_kept_a3aee",
                    table="clusters_cluster",
                    when="AFTER",
                ),
            ),
        ),
    ]
