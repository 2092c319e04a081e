-- name: BEGINNINGS
-- What rows of these tables and keys began as: how a row is called that an entry says only the change of.
SELECT b."table", b.key, b.after FROM history_beginnings(%(tables)s::text[], %(keys)s::text[]) b;

-- name: PEOPLE
-- The addresses of these people, as far as whoever looks may know of them.
SELECT p.id, p.email FROM history_people(%(people)s::bigint[]) p;
