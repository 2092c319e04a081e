-- The month of a key that ends in an hour is told by its last part: the same months, and a tenth of the time.
CREATE OR REPLACE FUNCTION month_of_hour(hour text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN hour LIKE '20__-__-__T__Z' AND translate(hour, '0123456789', '') = '--TZ'
                 AND split_part(hour, '-', 2) COLLATE "C" BETWEEN '01' AND '12'
            THEN (split_part(hour, '-', 1)::int - 1970) * 12 + split_part(hour, '-', 2)::int - 1 END;

CREATE OR REPLACE FUNCTION usage_key_month(source_key text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN strpos(source_key, ' ') > 0 THEN NULL
    WHEN source_key LIKE '%/%Z' THEN public.month_of_hour(split_part(source_key, '/', -1))
    WHEN source_key LIKE '%/%/rest' THEN public.month_of_hour(split_part(source_key, '/', -2))
    WHEN source_key ~ '@[1-39][0-9]*$' THEN
        CASE WHEN length(split_part(source_key, '@', -1)) IN (9, 10) THEN
            CASE WHEN split_part(source_key, '@', -1)::bigint BETWEEN 980000000 AND 3999999999
                 THEN public.month_number(split_part(source_key, '@', -1)::bigint) END
        END END;
