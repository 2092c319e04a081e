-- Which months have to be proved anew. Whoever writes what a month's proof is computed from marks the month, in the same
-- transaction and whatever the program: a proof stands as long as there is no mark. A proof deletes the marks that it saw
-- and no other: of a transaction that commits meanwhile the mark stays.

-- The months of [since, until] in UTC, each by its first day.
CREATE FUNCTION months_between(since bigint, until bigint) RETURNS SETOF date LANGUAGE sql IMMUTABLE AS $$
    SELECT m::date FROM generate_series(utc_month(since)::timestamp, utc_month(until)::timestamp, interval '1 month') AS m
$$;

-- Adds marks of the months that this transaction has not marked yet: `app.proof_marks` has those.
CREATE FUNCTION billing_mark_months(months date[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    marked date[] := coalesce(nullif(current_setting('app.proof_marks', true), ''), '{}')::date[];
BEGIN
    months := ARRAY(SELECT m FROM unnest(months) AS m WHERE m IS NOT NULL EXCEPT SELECT unnest(marked) ORDER BY 1);
    IF months <> '{}' THEN
        INSERT INTO billing_proofmark (month) SELECT unnest(months);
        PERFORM set_config('app.proof_marks', (marked || months)::text, true);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION billing_mark_months(date[]) FROM PUBLIC;

-- One statement's rows are `written`: as they are now, or were. A proof is of a month of records and of what is kept of
-- billing periods that lie in it: a job marks the month of its record and those in which it ran.
CREATE FUNCTION billing_mark_proofs() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    months date[];
BEGIN
    IF TG_TABLE_NAME = 'clusters_usagerecord' THEN
        months := ARRAY(SELECT month_of_number(n) FROM (SELECT DISTINCT (id >> 40)::int AS n FROM written) w);
    ELSIF TG_TABLE_NAME = 'billing_ratedusage' THEN
        months := ARRAY(
            SELECT month_of_number(n) FROM (SELECT DISTINCT (record_id >> 40)::int AS n FROM written) w
            UNION SELECT DISTINCT service_month FROM written);
    ELSIF TG_TABLE_NAME = 'billing_ratedjob' THEN
        months := ARRAY(
            SELECT month_of_number(n) FROM (SELECT DISTINCT (record_id >> 40)::int AS n FROM written) w
            UNION SELECT months_between(first * 86400, last * 86400) FROM (
                SELECT DISTINCT started / 86400 AS first, coalesce(ended, seen_until, started) / 86400 AS last
                FROM written WHERE started IS NOT NULL
            ) ran);
    ELSIF TG_TABLE_NAME IN ('billing_dailyusage', 'billing_daytotal') THEN
        months := ARRAY(SELECT DISTINCT date_trunc('month', day)::date FROM written);
    ELSIF TG_TABLE_NAME = 'billing_usageseries' THEN
        months := ARRAY(
            SELECT DISTINCT date_trunc('month', d.day)::date
            FROM written s JOIN billing_dailyusage d ON d.tenant_id = s.tenant_id AND d.series_id = s.id);
    ELSE  -- what is kept of a period: the middle of a period lies in a month that its proof is part of
        months := ARRAY(
            SELECT DISTINCT date_trunc('month', (p.start + (p."end" - p.start) / 2) AT TIME ZONE 'UTC')::date
            FROM (SELECT DISTINCT period_id FROM written) w JOIN billing_billingperiod p ON p.id = w.period_id);
    END IF;
    PERFORM billing_mark_months(months);
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_mark_proofs() FROM PUBLIC;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['clusters_usagerecord', 'billing_ratedusage', 'billing_ratedjob', 'billing_dailyusage',
                                'billing_daytotal', 'billing_periodjobs', 'billing_periodtopjob', 'billing_usageseries'] LOOP
        -- A series that is new has no day yet.
        IF name <> 'billing_usageseries' THEN
            EXECUTE format('CREATE TRIGGER proof_is_marked_by_insert AFTER INSERT ON %I REFERENCING NEW TABLE AS written
                            FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_proofs()', name);
        END IF;
        EXECUTE format('CREATE TRIGGER proof_is_marked_by_update AFTER UPDATE ON %1$I REFERENCING NEW TABLE AS written
                        FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_proofs();
                        CREATE TRIGGER proof_is_marked_by_delete AFTER DELETE ON %1$I REFERENCING OLD TABLE AS written
                        FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_proofs()', name);
    END LOOP;
    -- What a job or row was before may lie in other months than what it is.
    FOREACH name IN ARRAY ARRAY['billing_ratedusage', 'billing_ratedjob'] LOOP
        EXECUTE format('CREATE TRIGGER proof_is_marked_as_it_was AFTER UPDATE ON %I REFERENCING OLD TABLE AS written
                        FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_proofs()', name);
    END LOOP;
END $$;

-- The borders of a period, which hardly ever move. One that is new has nothing in it that is not written afterwards.
CREATE FUNCTION billing_mark_period() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM billing_mark_months(ARRAY(
        SELECT date_trunc('month', (p.start + (p."end" - p.start) / 2) AT TIME ZONE 'UTC')::date
        FROM (SELECT OLD.* UNION ALL SELECT NEW.*) p WHERE p.id IS NOT NULL));
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_mark_period() FROM PUBLIC;
CREATE TRIGGER proof_is_marked_by_borders AFTER UPDATE OF start, "end", timezone, tenant_id ON billing_billingperiod
    FOR EACH ROW WHEN ((OLD.start, OLD."end", OLD.timezone, OLD.tenant_id)
                       IS DISTINCT FROM (NEW.start, NEW."end", NEW.timezone, NEW.tenant_id))
    EXECUTE FUNCTION billing_mark_period();
CREATE TRIGGER proof_is_marked_by_delete AFTER DELETE ON billing_billingperiod
    FOR EACH ROW EXECUTE FUNCTION billing_mark_period();
