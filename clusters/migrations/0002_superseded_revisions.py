"""Superseded revisions: partitioned by month from the first row on, without foreign keys."""

from django.db import migrations

TABLE = """
CREATE SEQUENCE clusters_usagerevision_id_seq;
CREATE TABLE clusters_usagerevision (
    id bigint NOT NULL DEFAULT nextval('clusters_usagerevision_id_seq'),
    superseded_month date NOT NULL, superseded_at timestamptz NOT NULL,
    record_id bigint NOT NULL, account_id bigint NOT NULL, revision int NOT NULL,
    source_key text NOT NULL, job_id text NOT NULL, name text NOT NULL, "user" text NOT NULL,
    queue text NOT NULL, qos text NOT NULL, priority_class text NOT NULL,
    gpus int NOT NULL, gpu_model text NOT NULL, mig_profile text NOT NULL,
    share_num int NOT NULL, share_den int NOT NULL,
    cpu_milli bigint NOT NULL, memory_mib bigint NOT NULL, nodes int NOT NULL,
    node_list text NOT NULL, requested text NOT NULL, time_limit bigint,
    submitted bigint, eligible bigint, started bigint, ended bigint, seen_until bigint,
    suspended bigint NOT NULL, state text NOT NULL, exit_code text NOT NULL,
    PRIMARY KEY (superseded_month, id)
) PARTITION BY RANGE (superseded_month);
CREATE INDEX revisions_of_record ON clusters_usagerevision (record_id, revision);

-- Makes the month's partition where it is missing. Runs as the tables' owner, so that a role that may
-- only write rows can ask for it.
CREATE FUNCTION clusters_ensure_month(month date) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    first date := date_trunc('month', month)::date;
    part text := 'clusters_usagerevision_' || to_char(first, 'YYYY_MM');
BEGIN
    IF to_regclass(part) IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('clusters_usagerevision', 0));
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF clusters_usagerevision FOR VALUES FROM (%L) TO (%L)',
                       part, first, (first + interval '1 month')::date);
    END IF;
END $$;
"""

UNDO = """
DROP FUNCTION clusters_ensure_month(date);
DROP TABLE clusters_usagerevision;
DROP SEQUENCE clusters_usagerevision_id_seq;
"""


class Migration(migrations.Migration):
    dependencies = [("clusters", "0001_initial")]
    operations = [migrations.RunSQL(TABLE, UNDO)]
