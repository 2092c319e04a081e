-- Sealed months whose rows stand in files alone: their tables of records, jobs and rated usage are empty, and stay.

-- Which these are, for everybody: it tells nothing of anybody.
CREATE OR REPLACE FUNCTION billing_dropped_months() RETURNS SETOF date LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT month FROM billing_sealedmonth WHERE dropped_at IS NOT NULL ORDER BY month
$$;
REVOKE EXECUTE ON FUNCTION billing_dropped_months() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_dropped_months() TO clustertab_portal, clustertab_agent, clustertab_operator;

-- Those of them whose jobs held anything in [since, until), in epoch seconds.
CREATE OR REPLACE FUNCTION billing_dropped_between(since bigint, until bigint) RETURNS SETOF date LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT s.month FROM billing_sealedmonth s LEFT JOIN billing_monthproof p ON p.month = s.month
    WHERE s.dropped_at IS NOT NULL
      AND least(p.first_second, extract(epoch FROM s.month::timestamp AT TIME ZONE 'UTC')) < until
      AND greatest(p.last_second, extract(epoch FROM (s.month + interval '1 month') AT TIME ZONE 'UTC')) > since
    ORDER BY s.month
$$;
-- Those of them with usage in one of these billing periods.
CREATE OR REPLACE FUNCTION billing_dropped_of_periods(periods bigint[]) RETURNS SETOF date LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT s.month FROM billing_sealedmonth s
    WHERE s.dropped_at IS NOT NULL AND EXISTS (
        SELECT FROM billing_monthsum m WHERE m.month = s.month AND m.period_id = ANY (periods))
    ORDER BY s.month
$$;
REVOKE EXECUTE ON FUNCTION billing_dropped_between(bigint, bigint), billing_dropped_of_periods(bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_dropped_between(bigint, bigint), billing_dropped_of_periods(bigint[])
    TO clustertab_portal, clustertab_agent, clustertab_operator;

-- Without its rows nobody can tell whether usage of such a month is new: a writer has to load it back first. Asked
-- of each row, whatever program writes it, an older one too, since a second record of a run would be billed. A month that is
-- loaded back has rated usage of jobs of earlier months, which may stay dropped: that is refused where both are.
CREATE OR REPLACE FUNCTION billing_refuse_dropped() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    record bigint;
    months date[];
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
    IF NOT EXISTS (SELECT FROM unnest(months) AS d WHERE NOT EXISTS (
        SELECT FROM billing_sealedmonth m WHERE m.month = d AND m.dropped_at IS NOT NULL)) THEN
        RAISE EXCEPTION 'The rows of % stand in the files of the sealed month alone: load them back first.',
            to_char(months[1], 'YYYY-MM');
    END IF;
    RETURN NEW;
END $$;
REVOKE EXECUTE ON FUNCTION billing_refuse_dropped() FROM PUBLIC;

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
BEGIN
    IF NOT EXISTS (SELECT FROM billing_sealedmonth s WHERE s.month = billing_drop_month.month) THEN
        RAISE EXCEPTION '% is not sealed.', month;
    END IF;
    EXECUTE 'LOCK TABLE ' || concat_ws(', ', 'billing_sealedmonth', (
        SELECT string_agg(format('%I', p || '_' || to_char(month, 'YYYY_MM')), ', ' ORDER BY n)
        FROM unnest(ARRAY['clusters_usagerecord', 'billing_ratedjob', 'billing_ratedusage']) WITH ORDINALITY AS t (p, n)
        WHERE to_regclass(p || '_' || to_char(month, 'YYYY_MM')) IS NOT NULL)) || ' IN ACCESS EXCLUSIVE MODE';
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
    UPDATE schema_level SET programs_from = 2 WHERE programs_from < 2;
END $$;
REVOKE EXECUTE ON FUNCTION billing_drop_month(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_drop_month(date) TO clustertab_operator;
