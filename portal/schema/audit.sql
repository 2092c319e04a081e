-- The history of changes: one function behind every table that `portal.core.audit.track` marks.

-- Who acts, through what and why are settings of the transaction (`portal.core.audit.acting_as`).
CREATE SEQUENCE audit_transaction;
ALTER TABLE audit_entry
    ALTER transaction SET DEFAULT current_setting('app.transaction')::bigint,
    ALTER at SET DEFAULT now(),
    ALTER who SET DEFAULT coalesce(current_setting('app.who', true), ''),
    ALTER through SET DEFAULT coalesce(current_setting('app.through', true), ''),
    ALTER why SET DEFAULT coalesce(current_setting('app.why', true), '');

-- Writes an entry for each row that the statement changed: what it was and what it is, of an update the columns that
-- changed alone. Arguments: the column of the tenant ('' where there is none), and the columns that are left out.
-- Runs as the tables' owner, so that a role which may change a row needs no right on its history.
-- A transaction's key is drawn from a sequence, since the server's own numbers begin anew on another server. Rows
-- without a number that this transaction sees are its own: whatever a setting says, no other transaction's key is taken,
-- and one that was drawn in a savepoint goes with it.
CREATE FUNCTION audit_record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    tenant text := TG_ARGV[0];
    excluded text[] := TG_ARGV[1];
    few constant int := 50;  -- rows; up to here each row is compared by itself, by a plan that is kept
    changed text[];
    entries bigint := 0;
    own bigint;
    begun boolean;
BEGIN
    SELECT transaction INTO own FROM audit_commit
    WHERE transaction = nullif(current_setting('app.transaction', true), '')::bigint AND number IS NULL;
    begun := FOUND;
    IF NOT begun THEN
        own := nextval('audit_transaction');
        PERFORM set_config('app.transaction', own::text, true);
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO audit_entry ("table", key, operation, after, tenant_id)
        SELECT TG_TABLE_NAME, n.row ->> 'id', 'insert', n.row - excluded, (n.row ->> tenant)::bigint
        FROM (SELECT to_jsonb(r) AS row FROM new_rows r) n;
        GET DIAGNOSTICS entries = ROW_COUNT;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO audit_entry ("table", key, operation, before, tenant_id)
        SELECT TG_TABLE_NAME, o.row ->> 'id', 'delete', o.row - excluded, (o.row ->> tenant)::bigint
        FROM (SELECT to_jsonb(r) AS row FROM old_rows r) o;
        GET DIAGNOSTICS entries = ROW_COUNT;
    ELSIF (SELECT count(*) FROM (SELECT FROM new_rows LIMIT few + 1) r) <= few THEN
        INSERT INTO audit_entry ("table", key, operation, before, after, tenant_id)
        SELECT TG_TABLE_NAME, p.key, 'update', d.before, d.after,
               coalesce(p.new ->> tenant, p.old ->> tenant)::bigint
        FROM (
            SELECT coalesce(o.id, n.id)::text AS key, to_jsonb(o) - excluded AS old, to_jsonb(n) - excluded AS new
            FROM old_rows o FULL JOIN new_rows n ON n.id = o.id
        ) p
        CROSS JOIN LATERAL (
            SELECT jsonb_object_agg(name, p.old -> name) FILTER (WHERE p.old ? name) AS before,
                   jsonb_object_agg(name, p.new -> name) FILTER (WHERE p.new ? name) AS after
            FROM jsonb_object_keys(coalesce(p.new, p.old)) name
            WHERE p.new -> name IS DISTINCT FROM p.old -> name
        ) d
        WHERE d.before IS NOT NULL OR d.after IS NOT NULL;
        GET DIAGNOSTICS entries = ROW_COUNT;
    ELSE
        EXECUTE audit_changed_columns(TG_RELID, excluded) INTO changed;
        IF cardinality(changed) > 0 THEN
            EXECUTE audit_bulk_update(TG_TABLE_NAME, tenant, changed);
            GET DIAGNOSTICS entries = ROW_COUNT;
        END IF;
    END IF;
    IF entries > 0 AND NOT begun THEN
        INSERT INTO audit_commit (transaction) VALUES (own);
    END IF;
    RETURN NULL;
END $$;

-- The query that tells which columns any row of a large update has changed.
CREATE FUNCTION audit_changed_columns(relation oid, excluded text[]) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format(
        'SELECT array_remove(ARRAY[%s], NULL) FROM old_rows o FULL JOIN new_rows n ON n.id = o.id',
        string_agg(format('CASE WHEN bool_or(o.%1$I IS DISTINCT FROM n.%1$I) THEN %1$L END', attname), ', '))
    FROM pg_attribute
    WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped AND attname <> ALL (excluded)
$$;

-- The statement that writes the entries of a large update of these columns. Comparing columns, once known, costs a
-- fifth of taking each row apart as JSON.
CREATE FUNCTION audit_bulk_update(relation text, tenant text, changed text[]) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format(
        'INSERT INTO audit_entry ("table", key, operation, before, after, tenant_id)
         SELECT %1$L, coalesce(o.id, n.id)::text, ''update'', jsonb_build_object(%2$s)%3$s,
                jsonb_build_object(%4$s)%3$s, %5$s
         FROM old_rows o FULL JOIN new_rows n ON n.id = o.id WHERE %6$s',
        relation,
        string_agg(format('%1$L, o.%1$I', name), ', '),
        -- where the statement changed several columns, a row may have kept some of them
        CASE WHEN cardinality(changed) > 1 THEN format(' - array_remove(ARRAY[%s], NULL)', string_agg(
            format('CASE WHEN o.%1$I IS NOT DISTINCT FROM n.%1$I THEN %1$L END', name), ', ')) END,
        string_agg(format('%1$L, n.%1$I', name), ', '),
        CASE tenant WHEN '' THEN 'NULL' ELSE format('coalesce(n.%1$I, o.%1$I)', tenant) END,
        string_agg(format('o.%1$I IS DISTINCT FROM n.%1$I', name), ' OR '))
    FROM unnest(changed) name
$$;

-- A transaction's number is the last thing that it gets: whoever has a lower one has committed before. The first of
-- two deferred steps only asks for the second, which so comes after every other deferred check: those may wait for
-- rows of others, and nobody who waits may hold the lock that everybody's commit needs.
CREATE FUNCTION audit_number() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE audit_commit SET number = NULL WHERE transaction = NEW.transaction;
    ELSE
        PERFORM pg_advisory_xact_lock(hashtextextended('audit_commit', 0));
        UPDATE audit_commit SET number = nextval('audit_commit_number') WHERE transaction = NEW.transaction;
    END IF;
    RETURN NULL;
END $$;
CREATE SEQUENCE audit_commit_number;
CREATE CONSTRAINT TRIGGER transaction_is_numbered AFTER INSERT ON audit_commit
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit_number();
CREATE CONSTRAINT TRIGGER transaction_is_numbered_last AFTER UPDATE ON audit_commit
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.number IS NULL) EXECUTE FUNCTION audit_number();

-- The history is append-only, but for what names people: a value may become "(erased)", and nothing else.
CREATE FUNCTION audit_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - '{before,after,who}'::text[] = to_jsonb(OLD) - '{before,after,who}'::text[]
       AND (NEW.who = OLD.who OR NEW.who = 'an erased person')
       AND audit_only_erased(OLD.before, NEW.before) AND audit_only_erased(OLD.after, NEW.after) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'The history is kept as it was written.';
END $$;
CREATE FUNCTION audit_only_erased(old jsonb, new jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (old IS NULL) = (new IS NULL) AND NOT EXISTS (
        SELECT FROM jsonb_each(old) o FULL JOIN jsonb_each(new) n ON n.key = o.key
        WHERE o.key IS NULL OR n.key IS NULL OR n.value <> o.value AND n.value <> '"(erased)"')
$$;
CREATE TRIGGER history_is_kept BEFORE UPDATE OR DELETE ON audit_entry
    FOR EACH ROW EXECUTE FUNCTION audit_keep();

-- Entries and numbers are written by the triggers above alone, and neither table is ever emptied.
CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP IN ('DELETE', 'TRUNCATE') OR pg_trigger_depth() < 2 THEN
        RAISE EXCEPTION 'The history is kept as it was written.';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER history_is_written_by_triggers BEFORE INSERT OR TRUNCATE ON audit_entry
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER numbers_are_given_by_triggers BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON audit_commit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();

-- What an entry says after people were erased from these columns: whoever stands there, or where `names` are given, values
-- that are one of them, or a list with one. An empty value names nobody and stays.
CREATE FUNCTION audit_erased(value jsonb, columns text[], names text[]) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT value || coalesce((
        SELECT jsonb_object_agg(e.key, '(erased)') FROM jsonb_each(value) e
        WHERE e.key = ANY (columns)
          AND CASE WHEN names IS NULL THEN e.value NOT IN ('null', '""', '[]', '{}') ELSE e.value ?| names END), '{}')
$$;

-- Erase people from a tenant's entries. `personal`: by table the columns that they stand in.
CREATE FUNCTION audit_erase(tenant bigint, personal jsonb, names text[]) RETURNS void LANGUAGE sql AS $$
    UPDATE audit_entry e
    SET before = audit_erased(before, p.columns, names), after = audit_erased(after, p.columns, names)
    FROM (
        SELECT key AS relation, ARRAY(SELECT jsonb_array_elements_text(value)) AS columns FROM jsonb_each(personal)
    ) p
    WHERE e.tenant_id = tenant AND e."table" = p.relation
      AND (before ?| p.columns OR after ?| p.columns)  -- cheap: most entries are of other columns
      AND (before IS DISTINCT FROM audit_erased(before, p.columns, names)
           OR after IS DISTINCT FROM audit_erased(after, p.columns, names))
$$;
CREATE FUNCTION audit_erase_authors(emails text[], erased text) RETURNS void LANGUAGE sql AS $$
    UPDATE audit_entry SET who = erased WHERE who = ANY (emails)
$$;

REVOKE EXECUTE ON FUNCTION audit_record(), audit_number() FROM PUBLIC;  -- triggers need no right to run them
