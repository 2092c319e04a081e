-- Tables in partitions by month from the first row on, without foreign keys; Django knows them as unmanaged models.

-- How the table of a month is looked after: by numbers of rows, not by shares of the table. Of ten million rows a fifth
-- would be dead before anybody came.
CREATE FUNCTION maintain_month(part text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %I SET (
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000)', part);
END $$;
REVOKE EXECUTE ON FUNCTION maintain_month(text) FROM PUBLIC;

-- From the first run on that is seen while it goes on, the pages of its month keep room: its rows are written anew at each
-- sight, within their pages as long as there is room. Files of runs that have ended leave pages full.
CREATE FUNCTION keep_room(part text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass(part) AND 'fillfactor=70' = ANY (reloptions)) THEN
        EXECUTE format('ALTER TABLE %I SET (fillfactor = 70)', part);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION keep_room(text) FROM PUBLIC;

-- Rated usage, by the month of service: append-only.
CREATE SEQUENCE billing_ratedusage_id_seq;
CREATE TABLE billing_ratedusage (
    id bigint NOT NULL, record_id bigint NOT NULL, tenant_id bigint NOT NULL, project_id bigint NOT NULL,
    period_id bigint NOT NULL, version_id bigint, price_id bigint,
    service_from bigint NOT NULL, service_to bigint NOT NULL, units bigint NOT NULL,
    service_month date NOT NULL, revision int NOT NULL, generation int NOT NULL,
    share_num int NOT NULL, share_den int NOT NULL, reversal boolean NOT NULL,
    resource text NOT NULL, verdict text NOT NULL, payer_id bigint,
    CONSTRAINT rated_reversal_is_negative CHECK (reversal = (units < 0) AND units <> 0),
    CONSTRAINT rated_span_is_not_empty CHECK (service_to > service_from),
    CONSTRAINT rated_price_follows_verdict CHECK ((verdict = 'charged') = (price_id IS NOT NULL)),
    CONSTRAINT usage_is_rated_once
        UNIQUE (record_id, resource, service_from, generation, reversal, service_month)
) PARTITION BY RANGE (service_month);
-- What a tenant's documents are made of, of which its month has few among those of all.
CREATE INDEX usage_of_period ON billing_ratedusage (tenant_id, period_id);

-- But for the last stretch of a run that goes on, as long as no document covers it: it grows, and is the newest row then.
CREATE FUNCTION billing_rated_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id > OLD.id AND NEW.service_to > OLD.service_to AND NOT OLD.reversal
       AND (to_jsonb(NEW) - '{id,service_to,units,revision}'::text[])
         = (to_jsonb(OLD) - '{id,service_to,units,revision}'::text[])
       AND NOT EXISTS (
           SELECT FROM billing_billingperiod p
           JOIN billing_invoice i ON i.tenant_id = coalesce(OLD.payer_id, OLD.tenant_id) AND i.period_end >= p."end"
           WHERE p.id = OLD.period_id AND i.rated_through >= OLD.id) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'Rated usage is append-only: a change is a negation and a new row.';
END $$;
CREATE TRIGGER rated_is_append_only BEFORE UPDATE OR DELETE ON billing_ratedusage
    FOR EACH ROW EXECUTE FUNCTION billing_rated_is_append_only();

-- Makes the month's partition where it is missing, as the tables' owner. It is attached once it is there: made as a
-- partition of its table it would wait for whoever reads that, as a backup all the while it lasts, and keep all who come
-- after waiting with it.
CREATE FUNCTION billing_ensure_month(month date, grows boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    first date := date_trunc('month', month)::date;
    part text := 'billing_ratedusage_' || to_char(first, 'YYYY_MM');
BEGIN
    IF to_regclass(part) IS NULL THEN
        -- One maker of partitions at a time: two that made several months each could wait for each other.
        PERFORM pg_advisory_xact_lock(hashtextextended('billing_ratedusage', 0));
        -- Somebody may have made it meanwhile: to_regclass would not have heard of that.
        IF NOT EXISTS (SELECT FROM pg_class WHERE relname = part AND relnamespace = 'public'::regnamespace) THEN
            EXECUTE format('CREATE TABLE %I (LIKE billing_ratedusage INCLUDING ALL)', part);
            PERFORM maintain_month(part);
            PERFORM billing_watch_writes(part, 'billing_ratedusage');
            EXECUTE format('ALTER TABLE billing_ratedusage ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                           part, first, (first + interval '1 month')::date);
            EXECUTE format('GRANT SELECT ON %I TO clustertab_operator', part);
        END IF;
    END IF;
    IF grows THEN
        PERFORM keep_room(part);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION billing_ensure_month(date, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_ensure_month(date, boolean) TO clustertab_operator, clustertab_agent;

-- Superseded revisions of usage, by the month in which they were.
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
    gpu_memory_mib bigint NOT NULL DEFAULT 0, billing bigint NOT NULL DEFAULT 0,
    meter text NOT NULL DEFAULT '', quantity bigint,
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
        IF EXISTS (SELECT FROM pg_class WHERE relname = part AND relnamespace = 'public'::regnamespace) THEN
            RETURN;  -- somebody made it meanwhile: to_regclass would not have heard of that
        END IF;
        EXECUTE format('CREATE TABLE %I (LIKE clusters_usagerevision INCLUDING ALL)', part);
        PERFORM maintain_month(part);
        EXECUTE format('ALTER TABLE clusters_usagerevision ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                       part, first, (first + interval '1 month')::date);
        EXECUTE format('GRANT SELECT ON %I TO clustertab_operator', part);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION clusters_ensure_month(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION clusters_ensure_month(date) TO clustertab_operator;
