"""Rated usage: partitioned by service month from the first row on, append-only, without foreign keys."""

from django.db import migrations

TABLE = """
CREATE SEQUENCE billing_ratedusage_id_seq;
CREATE TABLE billing_ratedusage (
    id bigint NOT NULL, record_id bigint NOT NULL, tenant_id bigint NOT NULL, project_id bigint NOT NULL,
    period_id bigint NOT NULL, version_id bigint, price_id bigint,
    service_from bigint NOT NULL, service_to bigint NOT NULL, units bigint NOT NULL,
    service_month date NOT NULL, revision int NOT NULL, generation int NOT NULL,
    share_num int NOT NULL, share_den int NOT NULL, reversal boolean NOT NULL,
    resource text NOT NULL, verdict text NOT NULL,
    CONSTRAINT rated_reversal_is_negative CHECK (reversal = (units < 0) AND units <> 0),
    CONSTRAINT rated_span_is_not_empty CHECK (service_to > service_from),
    CONSTRAINT rated_price_follows_verdict CHECK ((verdict = 'charged') = (price_id IS NOT NULL)),
    CONSTRAINT usage_is_rated_once
        UNIQUE (record_id, resource, service_from, generation, reversal, service_month)
) PARTITION BY RANGE (service_month);

CREATE FUNCTION billing_rated_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'Rated usage is append-only: a change is a negation and a new row.';
END $$;
CREATE TRIGGER rated_is_append_only BEFORE UPDATE OR DELETE ON billing_ratedusage
    FOR EACH ROW EXECUTE FUNCTION billing_rated_is_append_only();

-- Makes the month's partition where it is missing, as the tables' owner.
CREATE FUNCTION billing_ensure_month(month date) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    first date := date_trunc('month', month)::date;
    part text := 'billing_ratedusage_' || to_char(first, 'YYYY_MM');
BEGIN
    IF to_regclass(part) IS NULL THEN
        -- One maker of partitions at a time: two that made several months each could wait for each other.
        PERFORM pg_advisory_xact_lock(hashtextextended('billing_ratedusage', 0));
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF billing_ratedusage FOR VALUES FROM (%L) TO (%L)',
                       part, first, (first + interval '1 month')::date);
    END IF;
END $$;
"""

UNDO = """
DROP FUNCTION billing_ensure_month(date);
DROP TABLE billing_ratedusage;
DROP FUNCTION billing_rated_is_append_only();
DROP SEQUENCE billing_ratedusage_id_seq;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_initial")]
    operations = [migrations.RunSQL(TABLE, UNDO)]
