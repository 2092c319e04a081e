-- Records of usage and the jobs of tenants: partitions by the month of an instant that never changes. An id says its
-- month: months since 1970 << 40 | a number of its own, which stays below 2^53. So a look-up by id reads one partition,
-- the primary key is a single column, and whatever names a record names its month too.

CREATE FUNCTION month_number(epoch bigint) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (date_part('year', to_timestamp(epoch) AT TIME ZONE 'UTC')::int - 1970) * 12
       + date_part('month', to_timestamp(epoch) AT TIME ZONE 'UTC')::int - 1;

CREATE FUNCTION month_of_number(number int) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN make_date(1970 + number / 12, 1 + number % 12, 1);

-- Of "2026-03-02T10Z"; null of what is no hour of UTC.
CREATE FUNCTION month_of_hour(hour text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN hour LIKE '20__-__-__T__Z' AND translate(hour, '0123456789', '') = '--TZ'
                 AND split_part(hour, '-', 2) COLLATE "C" BETWEEN '01' AND '12'
            THEN (split_part(hour, '-', 1)::int - 1970) * 12 + split_part(hour, '-', 2)::int - 1 END;

-- The month that a source key says for ever: of "100001@1504521041" that of the submission, of "gpu1/ben/2026-03-02T10Z"
-- that of the hour. Null where it says none between 2001 and 2095, as that of a pod: `clusters_usagekey` holds its record.
-- A key with a space is one of pushed usage, "source id": whoever sends it chooses it, so what looks like an instant in it
-- says nothing. Every record that is written asks this three times, so what many keys are is told by a short expression and
-- by numbers: one that counts digits takes three times as long, and one that reads hours of a whole key ten times.
CREATE FUNCTION usage_key_month(source_key text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN strpos(source_key, ' ') > 0 THEN NULL
    WHEN source_key LIKE '%/%Z' THEN public.month_of_hour(split_part(source_key, '/', -1))
    WHEN source_key LIKE '%/%/rest' THEN public.month_of_hour(split_part(source_key, '/', -2))
    WHEN source_key ~ '@[1-39][0-9]*$' THEN
        CASE WHEN length(split_part(source_key, '@', -1)) IN (9, 10) THEN
            CASE WHEN split_part(source_key, '@', -1)::bigint BETWEEN 980000000 AND 3999999999
                 THEN public.month_number(split_part(source_key, '@', -1)::bigint) END
        END END;

CREATE SEQUENCE clusters_usagerecord_id_seq;
CREATE TABLE clusters_usagerecord (
    id bigint NOT NULL, cluster_id bigint NOT NULL, account_id bigint NOT NULL, last_seen timestamptz NOT NULL,
    cpu_milli bigint NOT NULL, memory_mib bigint NOT NULL, gpu_memory_mib bigint NOT NULL DEFAULT 0,
    billing bigint NOT NULL DEFAULT 0, suspended bigint NOT NULL, time_limit bigint, submitted bigint, eligible bigint,
    started bigint, ended bigint, seen_until bigint, quantity bigint,
    revision int NOT NULL, gpus int NOT NULL, share_num int NOT NULL, share_den int NOT NULL, nodes int NOT NULL,
    source_key text NOT NULL, job_id text NOT NULL, name text NOT NULL, "user" text NOT NULL, queue text NOT NULL,
    qos text NOT NULL, priority_class text NOT NULL, gpu_model text NOT NULL, mig_profile text NOT NULL,
    node_list text NOT NULL, requested text NOT NULL, state text NOT NULL, exit_code text NOT NULL,
    meter text NOT NULL DEFAULT '',
    PRIMARY KEY (id),
    -- With the unique key of each partition: a source key is recorded once for ever, whatever its times become.
    CONSTRAINT usage_is_in_the_month_of_its_key CHECK (coalesce(usage_key_month(source_key), id >> 40) = id >> 40),
    CONSTRAINT usage_ends_after_it_starts CHECK (ended IS NULL OR (started IS NOT NULL AND ended >= started)),
    CONSTRAINT usage_is_never_negative
        CHECK (gpus >= 0 AND cpu_milli >= 0 AND memory_mib >= 0 AND nodes >= 0 AND suspended >= 0),
    CONSTRAINT usage_weighs_never_less_than_nothing CHECK (gpu_memory_mib >= 0 AND billing >= 0),
    CONSTRAINT usage_share_is_a_fraction_of_one_gpu CHECK (share_num >= 1 AND share_den >= share_num),
    -- All of a sum belongs to its start: it is never open, and holds nothing that runs hold.
    CONSTRAINT usage_is_a_run_or_a_sum CHECK (
        CASE WHEN meter = '' THEN quantity IS NULL
             ELSE quantity IS NOT NULL AND quantity >= 0 AND started IS NOT NULL AND ended IS NOT NULL AND ended > started
                  AND share_num = 1 AND suspended + gpus + cpu_milli + memory_mib + gpu_memory_mib + billing = 0 END)
) PARTITION BY RANGE (id);
-- No column that changes while a run goes on is in a B-tree: its row is written anew within its page. What begins at a
-- time is found by few pages of another kind of index, which is no hindrance.
CREATE INDEX usage_of_account ON clusters_usagerecord (account_id);
CREATE INDEX usage_by_start ON clusters_usagerecord USING brin (started) WITH (pages_per_range = 32, autosummarize);
CREATE INDEX usage_still_open ON clusters_usagerecord (cluster_id, source_key) WHERE ended IS NULL;

-- The key of a record that is loaded back from a sealed month is its own still; of another record it is refused.
CREATE FUNCTION clusters_hold_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.clusters_usagekey (cluster_id, source_key, record_id)
    SELECT NEW.cluster_id, NEW.source_key, NEW.id WHERE NOT EXISTS (
        SELECT FROM public.clusters_usagekey k
        WHERE k.cluster_id = NEW.cluster_id AND k.source_key = NEW.source_key AND k.record_id = NEW.id);
    RETURN NULL;
END $$;
CREATE TRIGGER key_without_a_month_is_held AFTER INSERT ON clusters_usagerecord
    FOR EACH ROW WHEN (usage_key_month(NEW.source_key) IS NULL) EXECUTE FUNCTION clusters_hold_key();
CREATE FUNCTION clusters_keep_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'What identifies a record of usage never changes.';
END $$;
CREATE TRIGGER record_keeps_its_key BEFORE UPDATE OF id, cluster_id, source_key ON clusters_usagerecord
    FOR EACH ROW EXECUTE FUNCTION clusters_keep_key();

-- Makes a partition where it is missing: how, `billing_ensure_month` says. A month that was detached is attached again: by
-- its rows alone a late fact is new or not, and without them it would be recorded, and billed, twice.
CREATE FUNCTION ensure_month_of_ids(parent text, month int, grows boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    part text := parent || '_' || to_char(month_of_number(month), 'YYYY_MM');
    attached boolean := (SELECT relispartition FROM pg_class WHERE oid = to_regclass(part));
BEGIN
    IF attached IS NOT TRUE THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(parent, 0));
        -- Somebody may have made it meanwhile: to_regclass would not have heard of that.
        SELECT relispartition INTO attached FROM pg_class WHERE relname = part AND relnamespace = 'public'::regnamespace;
    END IF;
    IF attached IS NULL THEN
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', part, parent);
        PERFORM maintain_month(part);
        PERFORM billing_watch_writes(part, parent);
        IF parent = 'clusters_usagerecord' THEN
            EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I UNIQUE (cluster_id, source_key)', part, part || '_once');
        END IF;
        EXECUTE format('GRANT SELECT ON %I TO clustertab_operator', part);
    END IF;
    IF attached IS NOT TRUE THEN
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                       parent, part, month::bigint << 40, (month + 1)::bigint << 40);
    END IF;
    IF grows THEN
        PERFORM keep_room(part);
    END IF;
    RETURN part;
END $$;
REVOKE EXECUTE ON FUNCTION ensure_month_of_ids(text, int, boolean) FROM PUBLIC;

CREATE FUNCTION clusters_ensure_records(month int, grows boolean DEFAULT false) RETURNS text
LANGUAGE sql STRICT SECURITY DEFINER SET search_path = public, pg_temp AS
$$ SELECT ensure_month_of_ids('clusters_usagerecord', month, grows) $$;
REVOKE EXECUTE ON FUNCTION clusters_ensure_records(int, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION clusters_ensure_records(int, boolean) TO clustertab_operator;

-- Ten steps to each power of ten, from 1 on; 0 is what is less. Some jobs of a period are of its highest classes.
CREATE FUNCTION cost_class(cost numeric) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT width_bucket(cost, '{
        1,1.25,1.6,2,2.5,3.2,4,5,6.3,8,10,12.5,16,20,25,32,40,50,63,80,100,125,160,200,250,320,400,500,630,
        800,1000,1250,1600,2000,2500,3200,4000,5000,6300,8000,10000,12500,16000,20000,25000,32000,40000,
        50000,63000,80000,100000,125000,160000,200000,250000,320000,400000,500000,630000,800000,1000000,
        1250000,1600000,2000000,2500000,3200000,4000000,5000000,6300000,8000000,10000000,12500000,16000000,
        20000000,25000000,32000000,40000000,50000000,63000000,80000000,100000000,125000000,160000000,
        200000000,250000000,320000000,400000000,500000000,630000000,800000000,1000000000,1250000000,
        1600000000,2000000000,2500000000,3200000000,4000000000,5000000000,6300000000,8000000000
    }'::numeric[])::smallint
$$;

-- A job as its tenant sees it, beside its record. A tenant's lists are read by one index, the newest first.
CREATE TABLE billing_ratedjob (
    record_id bigint NOT NULL, tenant_id bigint NOT NULL, project_id bigint NOT NULL, shown_at bigint NOT NULL,
    cpu_milli bigint NOT NULL, memory_mib bigint NOT NULL, gpu_memory_mib bigint NOT NULL DEFAULT 0,
    billing bigint NOT NULL DEFAULT 0, suspended bigint NOT NULL DEFAULT 0, submitted bigint, started bigint, ended bigint,
    seen_until bigint, quantity bigint, gpu_units bigint NOT NULL,
    gpus int NOT NULL, share_num int NOT NULL, share_den int NOT NULL, nodes int NOT NULL,
    unpriced boolean NOT NULL,
    -- In the room that the next column leaves.
    cost_class smallint NOT NULL GENERATED ALWAYS AS (
        CASE WHEN ended IS NULL THEN 1000 ELSE cost_class(cost_units) END
    ) STORED,
    cost_price_id bigint, cost_units numeric(30, 6) NOT NULL,
    cluster text NOT NULL, account text NOT NULL, job_id text NOT NULL, name text NOT NULL, "user" text NOT NULL,
    queue text NOT NULL, qos text NOT NULL, gpu_model text NOT NULL, mig_profile text NOT NULL, state text NOT NULL,
    meter text NOT NULL DEFAULT '',
    -- What is numbered as a pod is, NAMESPACE/POD, is a part of the job NAMESPACE/NAME.
    part_of text NOT NULL GENERATED ALWAYS AS (
        CASE WHEN name <> '' AND meter = '' AND strpos(job_id, '/') > 1 THEN split_part(job_id, '/', 1) || '/' || name
             ELSE '' END
    ) STORED,
    -- The record first: rating looks up jobs by it, whoever their tenants are.
    PRIMARY KEY (record_id, tenant_id)
) PARTITION BY RANGE (record_id);
-- No column that grows with a run is in an index: while it goes on it is of the highest class of cost.
CREATE INDEX jobs_of_tenant_newest_first ON billing_ratedjob (tenant_id, shown_at DESC, record_id DESC) WHERE meter = '';
-- Lists by cost. All jobs of a class are one key, with six bytes for each. Of parts only their sum has a place there, and
-- who has many jobs looks for none of less than a GPU-hour.
CREATE INDEX jobs_by_cost_class ON billing_ratedjob (tenant_id, cost_class)
    WHERE meter = '' AND part_of = '' AND cost_class > 0;
-- Sums of declared meters are no jobs: however many there are, lists of jobs do not step over them.
CREATE INDEX sums_of_tenant_newest_first ON billing_ratedjob (tenant_id, shown_at DESC, record_id DESC) WHERE meter <> '';
-- The few that run or wait, found without reading all that ever ended.
CREATE INDEX open_jobs_of_tenant ON billing_ratedjob (tenant_id, shown_at DESC, record_id DESC) WHERE ended IS NULL;
-- Those of all tenants that ended lately, which monitoring asks for each minute. Rows come about in the order of their
-- ends, so that a few kilobytes lead to them.
CREATE INDEX jobs_by_end ON billing_ratedjob USING brin (ended) WITH (pages_per_range = 32, autosummarize);
-- The parts of one job; and whether a tenant has any.
CREATE INDEX parts_of_jobs ON billing_ratedjob (tenant_id, cluster, part_of, shown_at) WHERE part_of <> '';
-- What a search looks up: compared by bytes, so that no collation of the machine decides what an index is good for.
CREATE INDEX jobs_by_number ON billing_ratedjob (job_id text_pattern_ops) WHERE meter = '';

CREATE FUNCTION billing_ensure_jobs(month int, grows boolean DEFAULT false) RETURNS text
LANGUAGE sql STRICT SECURITY DEFINER SET search_path = public, pg_temp AS
$$ SELECT ensure_month_of_ids('billing_ratedjob', month, grows) $$;
REVOKE EXECUTE ON FUNCTION billing_ensure_jobs(int, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_ensure_jobs(int, boolean) TO clustertab_operator, clustertab_agent;
