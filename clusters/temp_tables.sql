-- All working tables. Each is of one session: made once per connection, and emptied at each commit.

-- name: LEDGER
-- usage_stage: a batch of facts as it was read; `turn` counts the facts of one key; `key_month` is the month that the
--     key says, `held_month` that of a record whose key says none. Filled and read by clusters.ledger.
-- usage_match: what each fact of a turn is to the record that there is: new, revised, described, seen, stale or same,
--     and the revision that it will have. Filled and read by clusters.ledger.
-- usage_touched: records that a batch changed. Filled by clusters.ledger, read by clusters.usage.
CREATE TEMP TABLE IF NOT EXISTS usage_stage (
    account_id bigint NOT NULL, source_key text NOT NULL, job_id text NOT NULL, name text NOT NULL, "user" text NOT NULL,
    queue text NOT NULL, qos text NOT NULL, priority_class text NOT NULL, gpu_model text NOT NULL,
    mig_profile text NOT NULL, node_list text NOT NULL, requested text NOT NULL, state text NOT NULL,
    exit_code text NOT NULL, turn int NOT NULL, gpus int NOT NULL, share_num int NOT NULL, share_den int NOT NULL,
    cpu_milli bigint NOT NULL, memory_mib bigint NOT NULL, nodes int NOT NULL, time_limit bigint, submitted bigint,
    eligible bigint, started bigint, ended bigint, seen_until bigint, suspended bigint NOT NULL,
    gpu_memory_mib bigint NOT NULL, billing bigint NOT NULL, meter text NOT NULL, quantity bigint,
    key_month int GENERATED ALWAYS AS (usage_key_month(source_key)) STORED, held_month int
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS usage_match (
    source_key text NOT NULL, account_id bigint NOT NULL, record_id bigint NOT NULL, verdict text NOT NULL, revision int NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS usage_touched (record_id bigint NOT NULL) ON COMMIT DELETE ROWS

-- name: USAGE
-- usage_input: the records to rate or to prove, as `clusters_run` has them; `fresh` ones have never been rated. Filled
--     by clusters.ledger and clusters.usage, read by billing.rating, billing.simulation and billing.proof.
CREATE TEMP TABLE IF NOT EXISTS usage_input (
    record_id bigint NOT NULL, revision int NOT NULL, cluster_id bigint NOT NULL, cluster text NOT NULL,
    account_id bigint NOT NULL, account text NOT NULL, job_id text NOT NULL, name text NOT NULL, "user" text NOT NULL,
    queue text NOT NULL, qos text NOT NULL, priority_class text NOT NULL, gpus int NOT NULL, gpu_model text NOT NULL,
    mig_profile text NOT NULL, share_num int NOT NULL, share_den int NOT NULL, cpu_milli bigint NOT NULL,
    memory_mib bigint NOT NULL, nodes int NOT NULL, state text NOT NULL, submitted bigint, started bigint, ended bigint,
    seen_until bigint, finish bigint, suspended bigint NOT NULL, gpu_memory_mib bigint NOT NULL,
    billing bigint NOT NULL, meter text NOT NULL, quantity bigint, fresh boolean NOT NULL
) ON COMMIT DELETE ROWS

-- name: FILED
-- usage_filed: records of months that are in no table, as their files have them, one of two tenants twice. Filled by
--     clusters.usage, read by it and by billing.simulation.
CREATE TEMP TABLE IF NOT EXISTS usage_filed (LIKE usage_input) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS usage_filed_record ON usage_filed (record_id)

-- name: ABSENT
-- usage_absent: records of staged facts whose month is in no table, as the archive has them. Filled by
--     billing.sealed_months, read by clusters.absent_records.
-- usage_late: keys of staged facts of such months whose records are in the table all the same. Filled by
--     clusters.absent_records, read by billing.sealed_months too.
CREATE TEMP TABLE IF NOT EXISTS usage_absent (LIKE clusters_usagerecord) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS usage_absent_key ON usage_absent (cluster_id, source_key);
CREATE TEMP TABLE IF NOT EXISTS usage_late (source_key text NOT NULL) ON COMMIT DELETE ROWS

-- name: UTILISATION
-- utilisation_stage: hours of telemetry by the key of their run, and its record once it is found. Filled and read by clusters.utilisation.
-- utilisation_job: hours of telemetry by the number of their job. Filled and read by clusters.utilisation.
-- utilisation_changed: records whose hours a batch changed. Filled by clusters.utilisation, read by clusters.usage.
CREATE TEMP TABLE IF NOT EXISTS utilisation_stage (
    source_key text NOT NULL, hour bigint NOT NULL, busy numeric(24, 9) NOT NULL, covered bigint NOT NULL,
    source text NOT NULL, metric text NOT NULL,
    key_month int GENERATED ALWAYS AS (usage_key_month(source_key)) STORED, record_id bigint
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS utilisation_job (
    job_id text NOT NULL, hour bigint NOT NULL, busy numeric(24, 9) NOT NULL, covered bigint NOT NULL,
    metric text NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS utilisation_changed (record_id bigint NOT NULL) ON COMMIT DELETE ROWS

-- name: OFFER
-- What usage that never was is priced by, too.
-- rate_span: stretches of an account's time in which nothing but the shape of usage makes a difference. Filled by
--     billing.rating.price_spans; `calendar_id` by billing.rating.tariff_hours.
-- rate_offer: the terms that usage of one resource is rated by, in a span, for a shape; both are empty where only rows
--     that are there already were rated by them. Of offers with the same terms each names the first as `terms_id`, so
--     that rows are compared by a number. Filled by billing.rating, read by billing.simulation too.
-- rate_cut: what should be rated. Filled by billing.rating, read by billing.simulation too.
-- rate_open: which prices for hours of the week are open together; rate_slice: when. Filled and read by
--     billing.rating.tariff_hours.
CREATE TEMP TABLE IF NOT EXISTS rate_span (
    account_id bigint NOT NULL, tenant_id bigint NOT NULL, project_id bigint NOT NULL, timezone text NOT NULL,
    since bigint NOT NULL, until bigint NOT NULL, period_id bigint NOT NULL, version_id bigint, charges text[],
    span_id int NOT NULL, calendar_id int, payer_id bigint
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_offer (
    offer_id int NOT NULL, terms_id int NOT NULL, account_id bigint, since bigint, until bigint,
    tenant_id bigint NOT NULL, project_id bigint NOT NULL, period_id bigint NOT NULL, version_id bigint,
    price_id bigint, service_month date, counted boolean NOT NULL, unit_price numeric, second_cost numeric,
    resource text NOT NULL, verdict text NOT NULL, timezone text NOT NULL, meter text, cluster text, queue text, qos text,
    priority_class text, gpu_model text, mig_profile text, state text, span_id int, open_id int, use text,
    payer_id bigint
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_cut (
    record_id bigint NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL, units bigint NOT NULL,
    offer_id int NOT NULL, share_num int NOT NULL, share_den int NOT NULL, place int NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_open (
    calendar_id int NOT NULL, open_id int NOT NULL, open bigint[] NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_slice (
    calendar_id int NOT NULL, since bigint NOT NULL, until bigint NOT NULL, open_id int NOT NULL
) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS rate_slice_since ON rate_slice (calendar_id, since)

-- name: RATE
-- rate_before: what jobs show of records that were rated before. Filled and read by billing.rating.
-- rate_job: jobs, without sums of meters, as they were just written, or as they were when they went. Filled by billing.rating.engine, read by
--     billing.rating.period_jobs.
-- rate_period: the billing periods of those; rate_doubt: of which, by price, it is in doubt whether enough of the most
--     expensive jobs are kept. Filled and read by billing.rating.period_jobs.
-- rate_held: whose runs without GPUs are, and the newest span in which; nothing may be rated of them. Filled and read by
--     billing.rating.
-- rate_entry: what was ever rated of the same records. Filled and read by billing.rating.
-- rate_change: what has to be appended, or `grows` in its place. Filled and read by billing.rating.
-- rate_move: what is rated of jobs whose description changed. Filled and read by billing.rating.
-- rate_daily: what is added to each day's usage. Filled and read by billing.rating.
-- rate_day: the local days of each zone, each below every UTC day that it touches. Filled and read by billing.rating.
-- rate_hour: the UTC hours of those days, where a plan settles by wallet. Filled and read by billing.rating.
CREATE TEMP TABLE IF NOT EXISTS rate_before (
    record_id bigint NOT NULL, tenant_id bigint NOT NULL, started bigint, finish bigint, "user" text NOT NULL,
    gpu_model text NOT NULL, redescribed boolean NOT NULL, label text[] NOT NULL, next_label text[] NOT NULL,
    open boolean NOT NULL, price_id bigint NOT NULL, cost_units numeric NOT NULL, gpu_units bigint NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_job (
    tenant_id bigint NOT NULL, record_id bigint NOT NULL, started bigint, finish bigint, price_id bigint NOT NULL,
    cost_units numeric NOT NULL, gpu_units bigint NOT NULL, gone boolean NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_period (
    tenant_id bigint NOT NULL, period_id bigint NOT NULL, since bigint NOT NULL, until bigint NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_doubt (
    tenant_id bigint NOT NULL, period_id bigint NOT NULL, price_id bigint NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_held (
    record_id bigint NOT NULL, tenant_id bigint NOT NULL, newest int NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_entry (
    id bigint NOT NULL, record_id bigint NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL, share_num int NOT NULL,
    share_den int NOT NULL, units bigint NOT NULL, generation int NOT NULL, terms_id int, resource text,
    tenant_id bigint, project_id bigint, period_id bigint, version_id bigint, price_id bigint, verdict text,
    payer_id bigint
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_change (
    id bigint NOT NULL, record_id bigint NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL,
    units bigint NOT NULL, offer_id int NOT NULL, share_num int NOT NULL, share_den int NOT NULL,
    revision int NOT NULL, generation int NOT NULL, service_month date NOT NULL, counted boolean NOT NULL,
    "user" text NOT NULL, gpu_model text NOT NULL, grows boolean NOT NULL DEFAULT false
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_move (
    tenant_id bigint NOT NULL, project_id bigint NOT NULL, resource text NOT NULL, price_id bigint,
    timezone text NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL, share_num int NOT NULL,
    share_den int NOT NULL, units bigint NOT NULL, label text[] NOT NULL, next_label text[] NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_daily (
    tenant_id bigint NOT NULL, day date NOT NULL, project_id bigint NOT NULL, resource text NOT NULL, price_id bigint,
    share_den int NOT NULL, label text[] NOT NULL, units numeric NOT NULL, digest bytea NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS rate_day (
    timezone text NOT NULL, utc_day bigint NOT NULL, day date NOT NULL, since bigint NOT NULL, until bigint NOT NULL,
    first boolean NOT NULL
) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS rate_day_since ON rate_day (timezone, since) WHERE first;
CREATE TEMP TABLE IF NOT EXISTS rate_hour (
    timezone text NOT NULL, hour int NOT NULL, day date NOT NULL, since bigint NOT NULL, until bigint NOT NULL
) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS rate_hour_since ON rate_hour (timezone, since)

-- name: PROVE
-- prove_time: what each tenant's plan charges when. prove_covered: up to which rated row documents cover each period.
-- prove_wallet: prices that wallets pay. prove_sum: what is rated of the records of each month, in partial sums.
-- prove_mark: months that were written to since they were proved. prove_period: billing periods to prove, with the days
--     of their tenant that are looked at. All filled and read by billing.proof.
CREATE TEMP TABLE IF NOT EXISTS prove_time (
    tenant_id bigint NOT NULL, since bigint NOT NULL, until bigint NOT NULL, charges text[]
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS prove_covered (
    period_id bigint NOT NULL, payer_id bigint NOT NULL, through bigint
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS prove_wallet (price_id bigint NOT NULL) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS prove_sum (
    month date NOT NULL, service_month date NOT NULL, cluster_id bigint, tenant_id bigint NOT NULL, period_id bigint NOT NULL,
    project_id bigint NOT NULL, price_id bigint, payer_id bigint, resource text NOT NULL, verdict text NOT NULL,
    share_den int NOT NULL, units numeric NOT NULL, oldest bigint NOT NULL, newest bigint NOT NULL, rows bigint NOT NULL,
    covered boolean, booked boolean
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS prove_mark (id bigint NOT NULL, month date NOT NULL) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS prove_period (
    period_id bigint NOT NULL, tenant_id bigint NOT NULL, since bigint NOT NULL, until bigint NOT NULL, first_day date NOT NULL,
    end_day date NOT NULL
) ON COMMIT DELETE ROWS

-- name: SUPPOSE
-- suppose_cut: cuts of usage that is only supposed, where an allowance is used in order of time. Filled by
--     billing.simulation.engine, read by billing.catalog.allowances.
CREATE TEMP TABLE IF NOT EXISTS suppose_cut (
    tenant_id bigint NOT NULL, period_id bigint NOT NULL, price_id bigint NOT NULL, service_month date NOT NULL,
    record_id bigint NOT NULL, service_from bigint NOT NULL, service_to bigint NOT NULL, units bigint NOT NULL,
    share_num int NOT NULL, share_den int NOT NULL, payer_id bigint
) ON COMMIT DELETE ROWS;
CREATE INDEX IF NOT EXISTS suppose_cut_of_price ON suppose_cut (price_id, tenant_id, period_id)

-- name: BILL
-- bill_stage: rows of a provider's bill as they were read; `digest` is of the whole row. bill_row: the same with what
--     tells equal ones apart. Filled and read by billing.reports.bills.
CREATE TEMP TABLE IF NOT EXISTS bill_stage (
    provider text NOT NULL, account text NOT NULL, period date NOT NULL, currency text NOT NULL, digest text NOT NULL,
    since bigint NOT NULL, until bigint NOT NULL, amount numeric NOT NULL
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS bill_row (
    provider text NOT NULL, account text NOT NULL, period date NOT NULL, currency text NOT NULL, charge text NOT NULL,
    since bigint NOT NULL, until bigint NOT NULL, amount numeric NOT NULL
) ON COMMIT DELETE ROWS
