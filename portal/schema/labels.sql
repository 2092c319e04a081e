-- Names: what usage is grouped by, cells of spreadsheets, erased users.
-- Plain SQL, so that the planner puts the text of a function in the place of its call.

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

-- The name that takes the place of an erased user's, by the number that documents have.
CREATE FUNCTION erased_user(number bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'erased user ' || number
$$;
