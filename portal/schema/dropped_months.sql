-- Sealed months whose rows stand in files alone: their tables of records, jobs and rated usage are empty, and stay.

-- Which these are, for everybody: it tells nothing of anybody.
CREATE FUNCTION billing_dropped_months() RETURNS SETOF date LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT month FROM billing_sealedmonth WHERE dropped_at IS NOT NULL ORDER BY month
$$;
REVOKE EXECUTE ON FUNCTION billing_dropped_months() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_dropped_months() TO clustertab_portal, clustertab_agent, clustertab_operator;

-- Those of them whose jobs held anything in [since, until), in epoch seconds.
CREATE FUNCTION billing_dropped_between(since bigint, until bigint) RETURNS SETOF date LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT s.month FROM billing_sealedmonth s LEFT JOIN billing_monthproof p ON p.month = s.month
    WHERE s.dropped_at IS NOT NULL
      AND least(p.first_second, extract(epoch FROM s.month::timestamp AT TIME ZONE 'UTC')) < until
      AND greatest(p.last_second, extract(epoch FROM (s.month + interval '1 month') AT TIME ZONE 'UTC')) > since
    ORDER BY s.month
$$;
-- Those of them with usage in one of these billing periods.
CREATE FUNCTION billing_dropped_of_periods(periods bigint[]) RETURNS SETOF date LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT s.month FROM billing_sealedmonth s
    WHERE s.dropped_at IS NOT NULL AND EXISTS (
        SELECT FROM billing_monthsum m WHERE m.month = s.month AND m.period_id = ANY (periods))
    ORDER BY s.month
$$;
REVOKE EXECUTE ON FUNCTION billing_dropped_between(bigint, bigint), billing_dropped_of_periods(bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_dropped_between(bigint, bigint), billing_dropped_of_periods(bigint[])
    TO clustertab_portal, clustertab_agent, clustertab_operator;

-- Without its rows nobody can tell whether usage of such a month is new: whoever writes it has to load it back first. Asked
-- of each row, whatever program writes it, an older one too, since a second record of a run would be billed. A month that is
-- loaded back has rated usage of jobs of earlier months, which may stay dropped: that is refused where both are.
CREATE FUNCTION billing_refuse_dropped() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
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

-- Empties the tables of a month, and has them refuse rows while it is dropped: where each holds exactly as many as were
-- compared with its files. No proof is marked by it, since nothing is told differently: those that the files prove stand.
-- Programs of release 1.0.0, which know no such months, begin no more over this database then.
CREATE FUNCTION billing_drop_month(month date, records bigint, jobs bigint, rated bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    parent text;
    part text;
    expected bigint;
    found bigint;
    marked text := current_setting('app.proof_marks', true);
BEGIN
    IF NOT EXISTS (SELECT FROM billing_sealedmonth s WHERE s.month = billing_drop_month.month) THEN
        RAISE EXCEPTION '% is not sealed.', month;
    END IF;
    FOR parent, expected IN VALUES ('clusters_usagerecord', records), ('billing_ratedjob', jobs),
                                   ('billing_ratedusage', rated) LOOP
        part := parent || '_' || to_char(month, 'YYYY_MM');
        IF to_regclass(part) IS NULL THEN
            found := 0;
        ELSE
            EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', part);
            EXECUTE format('SELECT count(*) FROM %I', part) INTO found;
        END IF;
        IF found <> expected THEN
            RAISE EXCEPTION '% has % rows and not %.', part, found, expected USING ERRCODE = 'data_exception';
        END IF;
    END LOOP;
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
REVOKE EXECUTE ON FUNCTION billing_drop_month(date, bigint, bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_drop_month(date, bigint, bigint, bigint) TO clustertab_operator;
