-- Days, months and instants.
-- Plain SQL, so that the planner puts the text of a function in the place of its call.

-- The epoch of a local day's first instant, as `billing.rules.period` has it. Of a midnight that comes twice PostgreSQL
-- takes the second; the day begins with the first.
CREATE FUNCTION day_start(day date, zone text) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT extract(epoch FROM CASE
        WHEN ((day::timestamp AT TIME ZONE zone - interval '1 hour') AT TIME ZONE zone)::date = day
        THEN day::timestamp AT TIME ZONE zone - interval '1 hour' ELSE day::timestamp AT TIME ZONE zone END)::bigint
$$;

-- Whether a job ran in [since, until); of those that began long before, none is shown there.
CREATE FUNCTION job_look_back() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 92 * 86400::bigint $$;
CREATE FUNCTION job_ran_in(started bigint, finish bigint, since bigint, until bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT started < until AND greatest(finish - 1, started) >= since AND started >= since - job_look_back()
$$;

-- The first day of an instant's UTC month, by which rated rows are partitioned.
CREATE FUNCTION utc_month(epoch bigint) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT date_trunc('month', to_timestamp(epoch) AT TIME ZONE 'UTC')::date
$$;

-- The local day of an instant.
CREATE FUNCTION local_day(epoch bigint, zone text) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (to_timestamp(epoch) AT TIME ZONE zone)::date
$$;

-- An instant as documents write it: "2026-03-01T00:00:00Z".
CREATE FUNCTION utc_text(epoch bigint) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT to_char(to_timestamp(epoch) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
$$;
