-- Which months have to be proved anew. Whoever writes what a month's proof is computed from marks the month, in the same
-- transaction and whatever the program: a proof stands as long as there is no mark. A proof deletes the marks that it saw
-- and no other: of a transaction that commits meanwhile the mark stays.

-- The months of [since, until] in UTC, each by its first day.
CREATE FUNCTION months_between(since bigint, until bigint) RETURNS SETOF date LANGUAGE sql IMMUTABLE AS $$
    SELECT m::date FROM generate_series(utc_month(since)::timestamp, utc_month(until)::timestamp, interval '1 month') AS m
$$;

-- That in which the middle of a period lies.
CREATE FUNCTION middle_month(start timestamptz, "end" timestamptz) RETURNS date LANGUAGE sql STABLE AS $$
    SELECT date_trunc('month', (start + ("end" - start) / 2) AT TIME ZONE 'UTC')::date
$$;

-- The months that this transaction has marked.
CREATE FUNCTION billing_marked_months() RETURNS date[] LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('app.proof_marks', true), ''), '{}')::date[];

-- Adds marks of the months that it has not marked yet.
CREATE FUNCTION billing_mark_months(months date[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    marked date[] := billing_marked_months();
BEGIN
    IF array_remove(months, NULL) <@ marked THEN
        RETURN;
    END IF;
    months := ARRAY(SELECT m FROM unnest(months) AS m WHERE m IS NOT NULL EXCEPT SELECT unnest(marked) ORDER BY 1);
    IF months <> '{}' THEN
        INSERT INTO billing_proofmark (month) SELECT unnest(months);
        PERFORM set_config('app.proof_marks', (marked || months)::text, true);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION billing_mark_months(date[]) FROM PUBLIC;

-- One statement's rows are `written`: as they are now, or were before they were deleted. The argument is their table, also
-- where a partition of it was written to by name. A proof is of a month of records and of what is kept of billing periods
-- that lie in it: a job marks the month of its record and those in which it ran. Nearly all statements write to one month or
-- two, or to months that are marked: the lowest and the highest say so, for a third to a tenth of what telling all takes.
CREATE FUNCTION billing_mark_proofs() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    months date[];
    first_record bigint;
    last_record bigint;
    first_day date;
    last_day date;
    few boolean := true;
BEGIN
    IF TG_ARGV[0] = 'clusters_usagerecord' THEN
        SELECT min(id), max(id) INTO first_record, last_record FROM written;
    ELSIF TG_ARGV[0] = 'billing_ratedusage' THEN
        SELECT min(record_id), max(record_id), min(service_month), max(service_month)
        INTO first_record, last_record, first_day, last_day FROM written;
    ELSIF TG_ARGV[0] = 'billing_ratedjob' THEN
        SELECT min(record_id), max(record_id), utc_month(min(started)),
               utc_month(max(coalesce(ended, seen_until, started)) FILTER (WHERE started IS NOT NULL))
        INTO first_record, last_record, first_day, last_day FROM written;
    ELSIF TG_ARGV[0] IN ('billing_dailyusage', 'billing_daytotal') THEN
        SELECT min(day), max(day) INTO first_day, last_day FROM written;
    ELSE
        few := false;
    END IF;
    first_day := date_trunc('month', first_day::timestamp);
    last_day := date_trunc('month', last_day::timestamp);
    few := few AND coalesce((last_record >> 40) - (first_record >> 40) <= 1, true)
           AND coalesce(last_day <= first_day + interval '1 month', true);
    IF few THEN
        PERFORM billing_mark_months(ARRAY[month_of_number((first_record >> 40)::int),
                                          month_of_number((last_record >> 40)::int), first_day, last_day]);
        RETURN NULL;
    ELSIF (first_record IS NOT NULL OR first_day IS NOT NULL) AND ARRAY(
        SELECT month_of_number(n) FROM generate_series((first_record >> 40)::int, (last_record >> 40)::int) AS n
        UNION SELECT m::date FROM generate_series(first_day::timestamp, last_day, interval '1 month') AS m
    ) <@ billing_marked_months() THEN
        RETURN NULL;
    END IF;
    IF TG_ARGV[0] = 'clusters_usagerecord' THEN
        months := ARRAY(SELECT month_of_number(n) FROM (SELECT DISTINCT (id >> 40)::int AS n FROM written) w);
    ELSIF TG_ARGV[0] = 'billing_ratedusage' THEN
        months := ARRAY(
            SELECT month_of_number(n) FROM (SELECT DISTINCT (record_id >> 40)::int AS n FROM written) w
            UNION SELECT DISTINCT service_month FROM written);
    ELSIF TG_ARGV[0] = 'billing_ratedjob' THEN
        months := ARRAY(
            SELECT month_of_number(n) FROM (SELECT DISTINCT (record_id >> 40)::int AS n FROM written) w
            UNION SELECT months_between(first * 86400, last * 86400) FROM (
                SELECT DISTINCT started / 86400 AS first, coalesce(ended, seen_until, started) / 86400 AS last
                FROM written WHERE started IS NOT NULL
            ) ran);
    ELSIF TG_ARGV[0] IN ('billing_dailyusage', 'billing_daytotal') THEN
        months := ARRAY(SELECT DISTINCT date_trunc('month', day)::date FROM written);
    ELSIF TG_ARGV[0] = 'billing_usageseries' THEN
        months := ARRAY(
            SELECT DISTINCT date_trunc('month', d.day)::date
            FROM written s JOIN billing_dailyusage d ON d.tenant_id = s.tenant_id AND d.series_id = s.id);
    ELSE  -- what is kept of a period: the middle of a period lies in a month that its proof is part of
        months := ARRAY(
            SELECT DISTINCT middle_month(p.start, p."end")
            FROM (SELECT DISTINCT period_id FROM written) w JOIN billing_billingperiod p ON p.id = w.period_id);
    END IF;
    PERFORM billing_mark_months(months);
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_mark_proofs() FROM PUBLIC;

-- Jobs as they were and as they are `written`. One that only went on, as a pod of a year at each pull, marks the month of
-- its record and the stretch that was added. Of the months before, it changes no more than its place among the most
-- expensive jobs, and that only where it passes what the list ends with.
CREATE FUNCTION billing_mark_jobs() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM billing_mark_months(ARRAY(
        WITH change AS MATERIALIZED (
            SELECT record_id, tenant_id, least(o.started, n.started) AS started, n.price_id, n.cost_units, n.gpu_units,
                   o.cost_units AS cost_before, o.gpu_units AS units_before, least(o.finish, n.finish) AS since,
                   greatest(o.finish, n.finish) AS finish, o.same IS NOT DISTINCT FROM n.same AS goes_on
            FROM (
                SELECT record_id, tenant_id, started, coalesce(ended, seen_until, started) AS finish, cost_units, gpu_units,
                       ROW(started, shown_at, cost_price_id, meter, "user", account, cluster, gpu_model, queue, qos, state)
                           AS same
                FROM was
            ) o FULL JOIN (
                SELECT record_id, tenant_id, started, coalesce(ended, seen_until, started) AS finish, cost_units, gpu_units,
                       ROW(started, shown_at, cost_price_id, meter, "user", account, cluster, gpu_model, queue, qos, state)
                           AS same, coalesce(cost_price_id, 0) AS price_id
                FROM written
            ) n USING (record_id, tenant_id)
        )
        SELECT month_of_number(n) FROM (SELECT DISTINCT (record_id >> 40)::int AS n FROM change) r
        UNION
        SELECT months_between(first * 86400, last * 86400) FROM (
            SELECT DISTINCT CASE WHEN goes_on THEN since ELSE started END / 86400 AS first, finish / 86400 AS last
            FROM change WHERE started IS NOT NULL
        ) ran
        UNION
        SELECT middle_month(p.start, p."end")
        FROM (SELECT * FROM change WHERE goes_on AND utc_month(started) < utc_month(since)) c
        JOIN billing_billingperiod p ON p.tenant_id = c.tenant_id AND p."end" > to_timestamp(c.started)
         AND p.start <= to_timestamp(least(c.started + job_look_back(), c.since))
        JOIN billing_periodjobs f ON f.tenant_id = p.tenant_id AND f.period_id = p.id AND f.price_id = c.price_id
        WHERE ((c.cost_before, c.units_before, c.record_id) > (f.floor_cost, f.floor_units, f.floor_id))
           <> ((c.cost_units, c.gpu_units, c.record_id) > (f.floor_cost, f.floor_units, f.floor_id))));
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_mark_jobs() FROM PUBLIC;

-- What a row was before it was moved to where its statement's rows are: hardly ever, and never by us. What records and jobs
-- name is never deleted.
CREATE FUNCTION billing_mark_moved_row() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_ARGV[0] = 'clusters_account' THEN
        PERFORM billing_mark_months(ARRAY(
            SELECT DISTINCT month_of_number((id >> 40)::int) FROM clusters_usagerecord WHERE account_id = OLD.id));
    ELSIF TG_ARGV[0] = 'tenants_project' THEN
        PERFORM billing_mark_months(ARRAY(
            SELECT DISTINCT month_of_number((record_id >> 40)::int) FROM billing_ratedjob
            WHERE tenant_id = OLD.tenant_id AND project_id = OLD.id));
    ELSIF TG_ARGV[0] = 'billing_usageseries' THEN
        PERFORM billing_mark_months(ARRAY(
            SELECT DISTINCT date_trunc('month', day)::date FROM billing_dailyusage
            WHERE tenant_id = OLD.tenant_id AND series_id = OLD.id));
    ELSIF TG_ARGV[0] = 'billing_ratedusage' THEN
        PERFORM billing_mark_months(ARRAY[OLD.service_month, month_of_number((OLD.record_id >> 40)::int)]);
    ELSIF TG_ARGV[0] IN ('billing_dailyusage', 'billing_daytotal') THEN
        PERFORM billing_mark_months(ARRAY[date_trunc('month', OLD.day)::date]);
    ELSE
        PERFORM billing_mark_months(ARRAY(
            SELECT middle_month(start, "end") FROM billing_billingperiod WHERE id = OLD.period_id));
    END IF;
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_mark_moved_row() FROM PUBLIC;

-- Before a table is emptied, which says nothing of its rows: marks that are emptied with it are gone, too.
CREATE FUNCTION billing_mark_every_month() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM billing_mark_months(ARRAY(
        SELECT month FROM billing_monthproof
        UNION SELECT to_date(right(c.relname, 7), 'YYYY_MM') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
              WHERE i.inhparent = 'clusters_usagerecord'::regclass));
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_mark_every_month() FROM PUBLIC;

-- Has what is written to `part` mark its months: a table, or a partition of it, since a statement that names a partition
-- fires no statement's trigger of the table. A series that is new has no day yet.
CREATE FUNCTION billing_watch_writes(part text, watched text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    jobs boolean := watched = 'billing_ratedjob';
BEGIN
    IF watched <> 'billing_usageseries' THEN
        EXECUTE format('CREATE TRIGGER proof_is_marked_by_insert AFTER INSERT ON %I REFERENCING NEW TABLE AS written
                        FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_proofs(%L)', part, watched);
    END IF;
    EXECUTE format('CREATE TRIGGER proof_is_marked_by_update AFTER UPDATE ON %1$I REFERENCING %3$s NEW TABLE AS written
                    FOR EACH STATEMENT EXECUTE FUNCTION %4$I(%2$L);
                    CREATE TRIGGER proof_is_marked_by_delete AFTER DELETE ON %1$I REFERENCING OLD TABLE AS written
                    FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_proofs(%2$L);
                    CREATE TRIGGER proof_is_marked_by_truncate BEFORE TRUNCATE ON %1$I
                    FOR EACH STATEMENT EXECUTE FUNCTION billing_mark_every_month()',
                   part, watched, CASE WHEN jobs THEN 'OLD TABLE AS was' ELSE '' END,
                   CASE WHEN jobs THEN 'billing_mark_jobs' ELSE 'billing_mark_proofs' END);
END $$;
REVOKE EXECUTE ON FUNCTION billing_watch_writes(text, text) FROM PUBLIC;

DO $$
DECLARE
    moved record;
BEGIN
    PERFORM billing_watch_writes(watched, watched) FROM unnest(ARRAY[
        'clusters_usagerecord', 'billing_ratedusage', 'billing_ratedjob', 'billing_dailyusage', 'billing_daytotal',
        'billing_periodjobs', 'billing_periodtopjob', 'billing_usageseries']) AS watched;
    FOR moved IN SELECT * FROM (VALUES
        ('clusters_account', 'id, cluster_id'), ('tenants_project', 'id, tenant_id'),
        ('billing_usageseries', 'id, tenant_id'), ('billing_ratedusage', 'record_id, service_month'),
        ('billing_dailyusage', 'day'), ('billing_daytotal', 'day'), ('billing_periodjobs', 'period_id'),
        ('billing_periodtopjob', 'period_id')) AS t (tbl, columns) LOOP
        EXECUTE format('CREATE TRIGGER proof_is_marked_as_it_was AFTER UPDATE OF %2$s ON %1$I
                        FOR EACH ROW WHEN (%3$s IS DISTINCT FROM %4$s) EXECUTE FUNCTION billing_mark_moved_row(%1$L)',
                       moved.tbl, moved.columns, 'ROW(OLD.' || replace(moved.columns, ', ', ', OLD.') || ')',
                       'ROW(NEW.' || replace(moved.columns, ', ', ', NEW.') || ')');
    END LOOP;
END $$;

-- The borders of a period, which hardly ever move. One that is new has nothing in it that is not written afterwards.
CREATE FUNCTION billing_mark_period() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM billing_mark_months(ARRAY(
        SELECT middle_month(p.start, p."end") FROM (SELECT OLD.* UNION ALL SELECT NEW.*) p WHERE p.id IS NOT NULL));
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_mark_period() FROM PUBLIC;
CREATE TRIGGER proof_is_marked_by_borders AFTER UPDATE OF start, "end", timezone, tenant_id ON billing_billingperiod
    FOR EACH ROW WHEN ((OLD.start, OLD."end", OLD.timezone, OLD.tenant_id)
                       IS DISTINCT FROM (NEW.start, NEW."end", NEW.timezone, NEW.tenant_id))
    EXECUTE FUNCTION billing_mark_period();
CREATE TRIGGER proof_is_marked_by_delete AFTER DELETE ON billing_billingperiod
    FOR EACH ROW EXECUTE FUNCTION billing_mark_period();
