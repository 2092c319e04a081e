-- How long a run held its resources, and the part of it in a span.
-- Plain SQL, so that the planner puts the text of a function in the place of its call.

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

-- Up to when usage counts: what a run held so far; of a sum its first second, since all of it belongs to its start.
CREATE FUNCTION usage_finish(meter text, started bigint, ended bigint, seen_until bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN meter = '' THEN coalesce(ended, seen_until) ELSE started + 1 END
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
