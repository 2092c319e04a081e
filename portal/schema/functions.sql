-- Expressions that many statements share. All are plain SQL, so that the planner puts their text in their place.

-- The seconds of [since, until) in which a run that lasts from `started` to `finish` held its resources.
-- Schedulers say how long a run was suspended, but not when: the held seconds up to t are
-- floor((t - started) × held / wall). A largest remainder over the cuts would depend on all of them at once, and a cut
-- that is added later would move seconds between parts that were billed. Differences of one running total cannot: parts
-- add up to the whole under any refinement, each is computed without the others, and in any order.
CREATE FUNCTION held_seconds(since bigint, until bigint, started bigint, finish bigint, suspended bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN suspended = 0 THEN greatest(least(until, finish) - greatest(since, started), 0)
        WHEN finish <= started THEN 0
        ELSE greatest((least(until, finish) - started) * (finish - started - suspended) / (finish - started)
                      - (greatest(since, started) - started) * (finish - started - suspended) / (finish - started), 0)
    END
$$;

-- Units that a run holds of the resource: GPUs or slices, thousandths of a core, MiB, Slurm's weight. A sum of a declared
-- meter, which is the resource, counts its quantity for an hour: where a resource has hours, the meter has its unit.
CREATE FUNCTION resource_amount(
    resource text, gpus bigint, cpu_milli bigint, memory_mib bigint, gpu_memory_mib bigint, billing bigint,
    meter text DEFAULT '', quantity bigint DEFAULT 0
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE resource WHEN 'gpu' THEN gpus WHEN 'cpu' THEN cpu_milli WHEN 'memory' THEN memory_mib
                         WHEN 'gpu-memory' THEN gpu_memory_mib WHEN 'billing' THEN billing
                         WHEN meter THEN quantity * 3600 ELSE 0 END
$$;

-- Up to when usage counts: what a run held so far; of a sum its first second, since all of it belongs to its start.
CREATE FUNCTION usage_finish(meter text, started bigint, ended bigint, seen_until bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN meter = '' THEN coalesce(ended, seen_until) ELSE started + 1 END
$$;

-- Whether a sum with such dimensions, `direction=input, model=large`, is one that a price selects: of each dimension that it
-- names, one of the values.
CREATE FUNCTION dimensions_match(selected text[], dimensions text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT NOT EXISTS (
        SELECT FROM unnest(selected) AS s (pair) GROUP BY split_part(pair, '=', 1)
        HAVING NOT bool_or(pair = ANY (string_to_array(dimensions, ', '))))
$$;

-- Whether use of the resource is rated, by what a plan charges; without a plan that is NULL. What is not rated is waived.
-- GPUs always have a row, charged or not: pages, days and reports count them. Without a plan, measures have none: they count
-- over again what cores and memory are asked a price for already.
CREATE FUNCTION resource_is_rated(resource text, is_measure boolean, charges text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT resource = 'gpu' OR CASE WHEN charges IS NULL THEN NOT is_measure ELSE resource = ANY (charges) END
$$;

-- How many units make one of what the meter counts; of GPUs the denominator of a slice, of a declared meter that of its sums.
CREATE FUNCTION resource_parts(resource text, share_den int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE resource WHEN 'cpu' THEN 1000 WHEN 'billing' THEN 1 WHEN 'memory' THEN 1024 WHEN 'gpu-memory' THEN 1024
                         ELSE share_den END
$$;

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

-- The part in [since, until) of units that are rated for [service_from, service_to): cumulative floors of their own, so
-- that the parts of a row add up to it whatever the cuts, and a reversal splits exactly as what it reverses.
CREATE FUNCTION units_within(
    units bigint, service_from bigint, service_to bigint, since bigint, until bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN mod(units, service_to - service_from) = 0
        THEN units / (service_to - service_from) * (least(until, service_to) - greatest(since, service_from))
        ELSE sign(units)::bigint * (
            div((least(until, service_to) - service_from)::numeric * abs(units), service_to - service_from)
            - div((greatest(since, service_from) - service_from)::numeric * abs(units), service_to - service_from)
        )::bigint END
$$;

-- Of the device-seconds that telemetry covered in an hour of a run, those up to the begin and up to the end of a span,
-- by the seconds that the run held in it: differences of one running total, so that the parts of any cuts add up to the
-- hour. A run that held less in the hour than was covered counts with what it held. No row where it held nothing.
CREATE FUNCTION covered_within(
    hour bigint, covered bigint, gpus bigint, started bigint, finish bigint, suspended bigint, since bigint,
    until bigint
) RETURNS TABLE (begins bigint, ends bigint) LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
    SELECT CASE WHEN before = 0 THEN 0 ELSE div(least(covered, whole)::numeric * before, whole)::bigint END,
           CASE WHEN upto = whole THEN least(covered, whole)
                ELSE div(least(covered, whole)::numeric * upto, whole)::bigint END
    FROM (
        SELECT gpus * held_seconds(hour, hour + 3600, started, finish, suspended) AS whole,
               gpus * held_seconds(hour, greatest(since, hour), started, finish, suspended) AS before,
               gpus * held_seconds(hour, least(until, hour + 3600), started, finish, suspended) AS upto
    ) span WHERE whole > 0 AND upto > before
$$;

-- What usage is grouped by, of what a job is described by.
CREATE FUNCTION usage_label(
    "user" text, account text, cluster text, gpu_model text, queue text, qos text, state text
) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY["user", account, cluster, gpu_model, queue, qos, state]
$$;

-- What tells the usage series of a tenant apart: names may be longer than what an index holds.
CREATE FUNCTION label_digest(label text[]) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT sha256(convert_to(label::text, 'UTF8'))
$$;
CREATE FUNCTION series_digest(project bigint, resource text, price bigint, share_den int, of_label bytea)
RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT sha256(of_label || convert_to(format('%s %s %s %s', project, resource, price, share_den), 'UTF8'))
$$;

-- A text as one cell of a spreadsheet, which takes what matches `formula` for one.
CREATE FUNCTION spreadsheet_cell(value text, formula text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value ~ formula THEN '''' || value ELSE coalesce(value, '') END
$$;

-- An instant as documents write it: "2026-03-01T00:00:00Z".
CREATE FUNCTION utc_text(epoch bigint) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT to_char(to_timestamp(epoch) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
$$;

-- The name that takes the place of an erased user's, by the number that documents have.
CREATE FUNCTION erased_user(number bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'erased user ' || number
$$;
