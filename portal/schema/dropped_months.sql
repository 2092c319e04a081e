-- Sealed months whose rows stand in files alone: their tables of records, jobs and rated usage are empty, and stay.

-- Which these are, for everybody: it tells nothing of anybody.
CREATE OR REPLACE FUNCTION billing_dropped_months() RETURNS SETOF date LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT month FROM billing_sealedmonth WHERE dropped_at IS NOT NULL ORDER BY month
$$;
REVOKE EXECUTE ON FUNCTION billing_dropped_months() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_dropped_months() TO clustertab_portal, clustertab_agent, clustertab_operator;

-- Late records: of such a month, and in their table all the same, as somebody told something of them that the files do not
-- say. With all that was rated of them, and their jobs; what the files have of them counts no more. These are numbers alone.
CREATE OR REPLACE FUNCTION billing_late_records() RETURNS SETOF bigint LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT r.id FROM billing_sealedmonth s
    CROSS JOIN LATERAL month_number(extract(epoch FROM s.month::timestamp AT TIME ZONE 'UTC')::bigint) AS n
    JOIN clusters_usagerecord r ON r.id >= n::bigint << 40 AND r.id < (n::bigint + 1) << 40
    WHERE s.dropped_at IS NOT NULL
$$;
REVOKE EXECUTE ON FUNCTION billing_late_records() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_late_records() TO clustertab_portal, clustertab_agent, clustertab_operator;

-- Those of them whose jobs held anything in [since, until), in epoch seconds.
CREATE OR REPLACE FUNCTION billing_dropped_between(since bigint, until bigint) RETURNS SETOF date LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT s.month FROM billing_sealedmonth s LEFT JOIN billing_monthproof p ON p.month = s.month
    WHERE s.dropped_at IS NOT NULL
      AND least(p.first_second, extract(epoch FROM s.month::timestamp AT TIME ZONE 'UTC')) < until
      AND (extract(epoch FROM (s.month + interval '1 month') AT TIME ZONE 'UTC') > since
           OR p.last_second >= since)  -- in which one may have been cancelled that never ran
    ORDER BY s.month
$$;
-- Those of them with usage in one of these billing periods, or with jobs that ran in it and have none.
CREATE OR REPLACE FUNCTION billing_dropped_of_periods(periods bigint[]) RETURNS SETOF date LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT s.month FROM billing_sealedmonth s
    WHERE s.dropped_at IS NOT NULL AND (s.unrated_periods && periods OR s.month IN (
        SELECT m.month FROM billing_billingperiod b
        JOIN billing_monthsum m ON m.tenant_id = b.tenant_id AND m.period_id = b.id WHERE b.id = ANY (periods)))
    ORDER BY s.month
$$;
-- Those of them whose files have rated usage of a billing period with a number in (after, through]: behind a line of a
-- document stand jobs of which something was rated since the document before it.
CREATE OR REPLACE FUNCTION billing_dropped_of_rows(periods bigint[], afters bigint[], throughs bigint[]) RETURNS SETOF date
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT s.month FROM billing_sealedmonth s
    WHERE s.dropped_at IS NOT NULL AND s.month IN (
        SELECT m.month FROM unnest(periods, afters, throughs) AS l (period_id, after, through)
        JOIN billing_billingperiod b ON b.id = l.period_id
        JOIN billing_monthsum m ON m.tenant_id = b.tenant_id AND m.period_id = b.id
         AND m.newest > l.after AND m.oldest <= l.through)
    ORDER BY s.month
$$;
REVOKE EXECUTE ON FUNCTION billing_dropped_between(bigint, bigint), billing_dropped_of_periods(bigint[]),
    billing_dropped_of_rows(bigint[], bigint[], bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_dropped_between(bigint, bigint), billing_dropped_of_periods(bigint[]),
    billing_dropped_of_rows(bigint[], bigint[], bigint[])
    TO clustertab_portal, clustertab_agent, clustertab_operator;

-- What a tenant's pages read such months by (billing/sealed_months/shown_rows.py), of the tenant in whose scope they ask:
-- its own files of jobs of these months, of rated usage of those jobs, also in later months that are dropped, and of
-- records and names, which are of all.
CREATE OR REPLACE FUNCTION billing_own_sealed_files(months date[])
RETURNS TABLE (month date, tenant_id bigint, kind text, bytes bigint, "rows" bigint, sha256 text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT s.month, f.tenant_id, f.kind, f.bytes, CASE WHEN f.tenant_id IS NULL THEN 0 ELSE f.rows END, f.sha256
    FROM (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint AS tenant_id) me
    JOIN billing_sealedfile f ON f.tenant_id = me.tenant_id OR f.tenant_id IS NULL
    JOIN billing_sealedmonth s ON s.id = f.month_id AND s.dropped_at IS NOT NULL
    WHERE CASE f.kind
        WHEN 'jobs' THEN f.tenant_id = me.tenant_id AND s.month = ANY (months)
        WHEN 'rated' THEN f.tenant_id = me.tenant_id AND EXISTS (
            SELECT FROM billing_monthsum m
            WHERE m.month = ANY (months) AND m.service_month = s.month AND m.tenant_id = me.tenant_id)
        WHEN 'records' THEN s.month = ANY (months)
        WHEN 'names' THEN s.month = ANY (months)
        ELSE false END AND me.tenant_id IS NOT NULL
    ORDER BY s.month, f.kind
$$;

-- The names that numbers of users in the tenant's files stand for, as far as whoever asks may see them.
CREATE OR REPLACE FUNCTION billing_own_job_users() RETURNS TABLE (id bigint, name text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT p.id, p.name FROM billing_jobuser p
    WHERE p.tenant_id = nullif(current_setting('app.tenant_id', true), '')::bigint
      AND (nullif(current_setting('app.users', true), '') IS NULL OR p.name = ANY ((SELECT own_users())::text[]))
$$;
-- What the tenant's plan waives of a run that it names by its account and amounts: as the view billing_waivedpart tells it
-- of runs in the tables. It knows of nobody's runs, and of no other tenant's plan.
CREATE OR REPLACE FUNCTION billing_own_waived(
    of_account bigint, cpu_milli bigint, memory_mib bigint, started bigint, finish bigint, suspended bigint
) RETURNS TABLE (project_id bigint, resource text, service_from bigint, service_to bigint, share_den int, units numeric)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT part.project_id, part.resource, part.service_from, part.service_to, part.share_den,
           part.amount * held_seconds(part.service_from, part.service_to, $4, $5, $6)
    FROM (
        SELECT o.project_id, r.resource, resource_parts(r.resource, 1) AS share_den,
               resource_amount(r.resource, 0, $2, $3, 0, 0) AS amount,
               greatest($4, t.since, extract(epoch FROM o.since)::bigint) AS service_from,
               least($5, t.until, extract(epoch FROM o.until)::bigint) AS service_to
        FROM tenants_ownership o
        JOIN billing_chargedtime t ON t.tenant_id = o.tenant_id
        JOIN billing_resource r ON NOT r.is_measure AND NOT resource_is_rated(r.resource, r.is_measure, t.charges)
        WHERE o.tenant_id = nullif(current_setting('app.tenant_id', true), '')::bigint AND o.account_id = $1
    ) part WHERE $4 IS NOT NULL AND part.service_to > part.service_from AND part.amount > 0
$$;
-- Rated usage of the tenant's jobs that stand in files, in months that do not: policies of a member look for the job in its
-- table. Of records of dropped months alone, and without a name of anybody.
CREATE OR REPLACE FUNCTION billing_own_rated_elsewhere(records bigint[]) RETURNS SETOF billing_ratedusage
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT r.* FROM billing_ratedusage r
    WHERE r.tenant_id = nullif(current_setting('app.tenant_id', true), '')::bigint AND r.record_id = ANY (records)
      AND r.record_id >> 40 IN (
          SELECT month_number(extract(epoch FROM m)::bigint) FROM billing_dropped_months() m)
      AND r.record_id NOT IN (SELECT billing_late_records())
$$;
REVOKE EXECUTE ON FUNCTION billing_own_sealed_files(date[]), billing_own_job_users(), billing_own_rated_elsewhere(bigint[]),
    billing_own_waived(bigint, bigint, bigint, bigint, bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_own_sealed_files(date[]), billing_own_job_users(), billing_own_rated_elsewhere(bigint[]),
    billing_own_waived(bigint, bigint, bigint, bigint, bigint, bigint) TO clustertab_portal, clustertab_operator;

-- Without its rows nobody can tell whether usage of such a month is new: a writer has to ask its files first, and says by
-- `app.late_months` that it holds the month and did. Asked of each row, whatever program writes it, an older one too, since
-- a second record of a run would be billed. A month that is loaded back has rated usage of jobs of earlier months, which may
-- stay dropped: that is refused where both are. What is written of a late record is told by that record. Which these are is
-- noted, so that a proof finds one that is gone.
CREATE OR REPLACE FUNCTION billing_refuse_dropped() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    record bigint;
    months date[];
    dropped boolean;
BEGIN
    IF TG_ARGV[0] = 'clusters_usagerecord' THEN
        record := NEW.id;
    ELSE
        record := NEW.record_id;
    END IF;
    months := ARRAY[month_of_number((record >> 40)::int)];
    IF TG_ARGV[0] = 'billing_ratedusage' THEN
        months := months || NEW.service_month;
    END IF;
    dropped := NOT EXISTS (SELECT FROM unnest(months) AS d WHERE NOT EXISTS (
        SELECT FROM billing_sealedmonth m WHERE m.month = d AND m.dropped_at IS NOT NULL));
    IF dropped AND NOT EXISTS (SELECT FROM clusters_usagerecord r WHERE r.id = record)
       AND NOT (TG_ARGV[0] = 'clusters_usagerecord' AND (record >> 40)::int = ANY (
           coalesce(nullif(current_setting('app.late_months', true), ''), '{}')::int[])) THEN
        RAISE EXCEPTION 'The rows of % stand in the files of the sealed month alone: load them back first.',
            to_char(months[1], 'YYYY-MM');
    END IF;
    IF dropped AND TG_ARGV[0] = 'clusters_usagerecord' THEN
        INSERT INTO billing_laterecord (record_id, cluster_id, source_key) VALUES (NEW.id, NEW.cluster_id, NEW.source_key)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NEW;
END $$;
REVOKE EXECUTE ON FUNCTION billing_refuse_dropped() FROM PUBLIC;

-- A table without rows, whose name every drop changes: it is this one or billing_drops_odd. A table that is emptied is empty
-- to a dump, too, that took its snapshot before, and would have neither the rows nor the mark. Such a dump looks for this
-- table by the name of before, and fails. One that has locked it already has locked the others, or keeps the drop waiting.
CREATE TABLE billing_drops_even ();
REVOKE ALL ON billing_drops_even FROM PUBLIC;
GRANT SELECT ON billing_drops_even TO clustertab_operator;

-- Empties the tables of a month, and has them refuse rows while it is dropped. No proof is marked by it, since nothing is
-- told differently: those that the files prove stand. Programs of release 1.0.0, which know no such months, begin no more
-- over this database then. A transaction that read which months are dropped holds a lock on their table until it
-- ends, and may read rows that long: so that table is locked, too, and before the others, as they take them in that order.
CREATE OR REPLACE FUNCTION billing_drop_month(month date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    parent text;
    part text;
    marked text := current_setting('app.proof_marks', true);
    drops text := CASE WHEN to_regclass('billing_drops_even') IS NULL THEN 'odd' ELSE 'even' END;
BEGIN
    IF NOT EXISTS (SELECT FROM billing_sealedmonth s WHERE s.month = billing_drop_month.month) THEN
        RAISE EXCEPTION '% is not sealed.', month;
    END IF;
    EXECUTE 'LOCK TABLE ' || concat_ws(', ', 'billing_sealedmonth', 'billing_drops_' || drops, (
        SELECT string_agg(format('%I', p || '_' || to_char(month, 'YYYY_MM')), ', ' ORDER BY n)
        FROM unnest(ARRAY['clusters_usagerecord', 'billing_ratedjob', 'billing_ratedusage']) WITH ORDINALITY AS t (p, n)
        WHERE to_regclass(p || '_' || to_char(month, 'YYYY_MM')) IS NOT NULL)) || ' IN ACCESS EXCLUSIVE MODE';
    -- Their other rows would stay. As if the month were locked: asked again, it is told by name.
    IF EXISTS (SELECT FROM billing_late_records() AS late WHERE EXISTS (
        SELECT FROM billing_ratedusage u WHERE u.record_id = late AND u.service_month = billing_drop_month.month)) THEN
        RAISE EXCEPTION 'Late records of other months used something in %.', month USING ERRCODE = 'lock_not_available';
    END IF;
    PERFORM set_config('app.proof_marks', ARRAY(
        SELECT p.month FROM billing_monthproof p
        UNION SELECT to_date(right(c.relname, 7), 'YYYY_MM') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
              WHERE i.inhparent = 'clusters_usagerecord'::regclass)::text, true);
    FOREACH parent IN ARRAY ARRAY['clusters_usagerecord', 'billing_ratedjob', 'billing_ratedusage'] LOOP
        part := parent || '_' || to_char(month, 'YYYY_MM');
        IF to_regclass(part) IS NOT NULL THEN
            EXECUTE format('TRUNCATE %I', part);
            IF NOT EXISTS (SELECT FROM pg_trigger
                           WHERE tgrelid = to_regclass(part) AND tgname = 'dropped_month_takes_no_rows') THEN
                EXECUTE format('CREATE TRIGGER dropped_month_takes_no_rows BEFORE INSERT ON %I
                                FOR EACH ROW EXECUTE FUNCTION billing_refuse_dropped(%L)', part, parent);
            END IF;
        END IF;
    END LOOP;
    PERFORM set_config('app.proof_marks', coalesce(marked, ''), true);
    EXECUTE format('ALTER TABLE billing_drops_%s RENAME TO billing_drops_%s', drops, CASE drops WHEN 'odd' THEN 'even' ELSE 'odd' END);
    UPDATE schema_level SET programs_from = 2 WHERE programs_from < 2;
END $$;
REVOKE EXECUTE ON FUNCTION billing_drop_month(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_drop_month(date) TO clustertab_operator;
