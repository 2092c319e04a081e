-- What a run holds of a resource, and whether that is rated.
-- Plain SQL, so that the planner puts the text of a function in the place of its call.

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
