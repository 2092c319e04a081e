"""The rows of a month as they are sealed: the columns of each table, their types, and the statements that copy them.

A user's name is in no file: rows have the number of it, that of `JobUser`, or below zero the place of a name in the
file of names, of usage that is no tenant's. Instants are microseconds since 1970 in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass

INTEGER, SMALL, TEXT, DAY = "BIGINT", "INTEGER", "VARCHAR", "DATE"
MOMENT, FLAG, USER, IMPLIED = "moment", "flag", "user", "implied"
COST = "DECIMAL(30,6)"
FILED_AS = {MOMENT: INTEGER, FLAG: SMALL, USER: INTEGER, IMPLIED: INTEGER}
"""The types of Parquet that are not the column's own."""
IMPLIED_BY = {
    "shown_at": '{t}."started"',
    "gpu_units": '{t}."gpus"::bigint * ({t}."ended" - {t}."started" - {t}."suspended")',
}
"""What other columns say of most jobs: a file has nothing then, a twentieth less in all. Older files have it."""


def _columns(**names: str) -> dict[str, str]:
    types = {"integers": INTEGER, "small": SMALL, "texts": TEXT, "moments": MOMENT, "days": DAY, "flags": FLAG,
             "users": USER, "costs": COST, "implied": IMPLIED}  # fmt: skip
    return {name: types[kind] for kind, line in names.items() for name in line.split()}


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows of one table: `month` says which belong to a month, `record` is the column of a record's number."""

    name: str
    table: str
    columns: dict[str, str]
    month: str
    order: str
    record: str = "record_id"
    of_tenant: bool = False

    @property
    def filed(self) -> dict[str, str]:
        """The columns of its files and their types in DuckDB."""
        return {name: FILED_AS.get(kind, kind) for name, kind in self.columns.items()}

    def copy(self) -> str:
        """Copies the month's rows out, in an order that is always the same, those of a tenant together."""
        columns = ", ".join(_written(_OUT, "t", *column) for column in self.columns.items())
        users = _TENANT_USER if self.of_tenant else self._record_user
        return (
            f"COPY (SELECT {columns} FROM {self.table} t {users if 'user' in self.columns else ''}"
            f" WHERE {self.month} ORDER BY {self.order}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        )

    def count(self) -> str:
        """How many rows the month has."""
        return f"SELECT count(*) FROM {self.table} t WHERE {self.month}"

    def unknown_names(self) -> str:
        """The names of users whom no tenant of their usage has a number for."""
        return (
            f'SELECT DISTINCT t."user" FROM {self.table} t {self._record_user}'
            f" WHERE {self.month} AND t.\"user\" <> '' AND p.id IS NULL"
        )

    def number_users(self) -> str:
        """Gives such users numbers where the usage is a tenant's: a revision may name another than its job."""
        return f"""
INSERT INTO billing_jobuser (tenant_id, name)
SELECT DISTINCT j.tenant_id, t."user" FROM {self.table} t JOIN billing_ratedjob j ON j.record_id = t."{self.record}"
{self._record_user}
WHERE {self.month} AND t."user" <> '' AND p.id IS NULL{self._within}
ORDER BY 1, 2 ON CONFLICT DO NOTHING
"""

    @property
    def _record_user(self) -> str:
        return _RECORD_USER.format(record=self.record, within=self._within)

    @property
    def _within(self) -> str:
        """Which table the jobs of the month's records stand in: else each would be looked for among all months."""
        return "" if self.record != "id" else " AND j.record_id > %(after)s AND j.record_id <= %(last)s"

    def working_table(self) -> str:
        """Makes the table that rows of a file are copied into."""
        types = ", ".join(f'"{name}" {kind}' for name, kind in self.filed.items())
        return f"CREATE TEMP TABLE sealed_rows ({types}) ON COMMIT DROP"

    def leave_missing(self, *, as_owned_now: bool) -> str:
        """Deletes from `sealed_rows` what the table has, as it is now, and jobs that are another tenant's now.

        Not those, where nothing was rated by that yet: rating takes them back.
        """
        moved = f" OR NOT EXISTS ({_OWNED})" if as_owned_now and self.name == "jobs" else ""
        return f"DELETE FROM sealed_rows t WHERE EXISTS (SELECT FROM {self.table} x WHERE {_KEYS[self.name]}){moved}"

    def insert(self, *, into: str = "", users: str = "billing_jobuser", of_kind: bool = False) -> str:
        """Inserts `sealed_rows` into the table, or into another one with its columns; `users` has who has a number.

        `of_kind` those of its own there, where rows of several stand.
        """
        names = ", ".join(f'"{name}"' for name in self.columns)
        values = ", ".join(_written(_IN, "t", *column) for column in self.columns.items())
        where = f" WHERE t.kind = '{self.name}'" if of_kind else ""
        return (
            f"INSERT INTO {into or self.table} ({names}) SELECT {values} FROM sealed_rows t"
            f" {self._numbered(users)}{where}"
        )

    def differs(self) -> str:
        """Whether the table has other values than `sealed_rows` in any of these rows, as they would be copied out.

        Users are compared by name: whom a number stands for may have been erased, and who had none may have one. What
        is implied is compared as it is in the table, since older files have it all.
        """
        table, rows = zip(
            *(
                (f'x."{name}"', _written(_IN, "t", name, kind))
                if kind in {USER, IMPLIED}
                else (_written(_OUT, "x", name, kind), f't."{name}"')
                for name, kind in self.columns.items()
            ),
            strict=True,
        )
        return (
            f"SELECT EXISTS (SELECT FROM sealed_rows t LEFT JOIN {self.table} x ON {_KEYS[self.name]}"
            f" {self._numbered()} WHERE ROW({', '.join(table)}) IS DISTINCT FROM ROW({', '.join(rows)}))"
        )

    def _numbered(self, users: str = "billing_jobuser") -> str:
        return f'LEFT JOIN {users} p ON p.id = t."user"' if "user" in self.columns else ""


def _written(expressions: dict[str, str], table: str, name: str, kind: str) -> str:
    implied = IMPLIED_BY.get(name, "").format(t=table)
    return expressions.get(kind, '{t}."{c}"').format(t=table, c=name, implied=implied)


COPY_IN = "COPY sealed_rows FROM STDIN (FORMAT csv)"
_OUT = {
    MOMENT: '(extract(epoch FROM {t}."{c}") * 1000000)::bigint',
    FLAG: '{t}."{c}"::int',
    IMPLIED: 'nullif({t}."{c}", {implied})',
    USER: """CASE {t}."{c}" WHEN '' THEN 0 ELSE coalesce(p.id, -n.number) END""",
}
_IN = {
    MOMENT: "timestamptz 'epoch' + {t}.\"{c}\" * interval '1 microsecond'",
    FLAG: '{t}."{c}"::boolean',
    IMPLIED: 'coalesce({t}."{c}", {implied})',
    USER: """CASE WHEN {t}."{c}" = 0 THEN '' ELSE coalesce(p.name, (%(names)s::text[])[-{t}."{c}"]) END""",
}
_NAMES = """LEFT JOIN unnest(%(names)s::text[]) WITH ORDINALITY n (name, number) ON n.name = t."user" """
_TENANT_USER = f'LEFT JOIN billing_jobuser p ON p.tenant_id = t.tenant_id AND p.name = t."user" {_NAMES}'
_RECORD_USER = f"""LEFT JOIN LATERAL (
    SELECT u.id FROM billing_ratedjob j JOIN billing_jobuser u ON u.tenant_id = j.tenant_id AND u.name = t."user"
    WHERE j.record_id = t."{{record}}"{{within}} ORDER BY u.id LIMIT 1
) p ON true {_NAMES}"""
_KEYS = {
    "records": "x.id = t.id",
    "revisions": "x.superseded_month = t.superseded_month AND x.id = t.id",
    "jobs": "x.record_id = t.record_id AND x.tenant_id = t.tenant_id",
    "rated": "x.service_month = t.service_month AND x.record_id = t.record_id AND x.id = t.id",
}
_OWNED = """
SELECT FROM clusters_usagerecord r JOIN tenants_ownership o ON o.account_id = r.account_id AND o.tenant_id = t.tenant_id
WHERE r.id = t.record_id AND (o.until IS NULL OR o.until >= to_timestamp(coalesce(t.shown_at, t.started)))
  AND (o.since IS NULL OR o.since <= to_timestamp(coalesce(t.ended, t.seen_until, t.shown_at, t.started) + 1))
"""

_RUN = "gpus share_num share_den nodes"
_HELD = "cpu_milli memory_mib gpu_memory_mib billing suspended submitted started ended seen_until quantity"
_TEXTS = "job_id name queue qos gpu_model mig_profile state meter"
_SOURCE = "source_key priority_class node_list requested exit_code"

KINDS = (
    Kind(
        "records", "clusters_usagerecord",
        _columns(integers=f"id cluster_id account_id time_limit eligible {_HELD}", small=f"revision {_RUN}",
                 texts=f"{_TEXTS} {_SOURCE}", moments="last_seen", users="user"),
        "t.id > %(after)s AND t.id <= %(last)s", "t.id", record="id",
    ),
    Kind(
        "revisions", "clusters_usagerevision",
        _columns(days="superseded_month", moments="superseded_at",
                 integers=f"id record_id account_id time_limit eligible {_HELD}", small=f"revision {_RUN}",
                 texts=f"{_TEXTS} {_SOURCE}", users="user"),
        "t.superseded_month = %(month)s", "t.id",
    ),
    Kind(
        "jobs", "billing_ratedjob",
        _columns(integers="tenant_id record_id project_id", implied="shown_at gpu_units")
        | _columns(integers=f"cost_price_id {_HELD}", small=_RUN, texts=f"cluster account {_TEXTS}", flags="unpriced",
                   costs="cost_units", users="user"),
        "t.record_id > %(after)s AND t.record_id <= %(last)s", "t.tenant_id, t.record_id", of_tenant=True,
    ),
    Kind(
        "rated", "billing_ratedusage",
        _columns(integers="tenant_id id record_id project_id period_id version_id price_id payer_id service_from"
                          " service_to units",
                 small="revision generation share_num share_den", days="service_month", flags="reversal",
                 texts="resource verdict"),
        "t.service_month = %(month)s", "t.tenant_id, t.record_id, t.id", of_tenant=True,
    ),
)  # fmt: skip
RECORDS, REVISIONS, JOBS, RATED = KINDS

_OF_RUNS = ("id", "cluster_id", "account_id", "time_limit", "eligible", "cpu_milli", "memory_mib", "suspended",
            "submitted", "started", "ended", "seen_until", "revision", "priority_class")  # fmt: skip
"""What a run adds to its job."""
_SHOWN = {
    JOBS.name: JOBS.filed,
    RATED.name: RATED.filed,
    RECORDS.name: {name: RECORDS.filed[name] for name in _OF_RUNS},
}
_TOGETHER = {name: kind for columns in _SHOWN.values() for name, kind in columns.items()}
SHOWN_COLUMNS = {
    kind: [name if name in columns else None for name in _TOGETHER] for kind, columns in _SHOWN.items()
}
"""By kind what stands in each column of the working table that jobs, their runs and what was rated share."""
SHOWN_TABLE = (
    "CREATE TEMP TABLE sealed_rows (kind text NOT NULL, "
    + ", ".join(f'"{name}" {kind}' for name, kind in _TOGETHER.items())
    + ") ON COMMIT DROP"
)
"""Makes that table."""

NAMES = "names"
NAME_COLUMNS = {"number": INTEGER, "name": TEXT}
"""Of the file of names: users of usage that is no tenant's, or was none's when it was used."""

NUMBER_USERS = """
INSERT INTO billing_jobuser (tenant_id, name)
SELECT DISTINCT j.tenant_id, j."user" FROM billing_ratedjob j
WHERE j.record_id > %(after)s AND j.record_id <= %(last)s AND j."user" <> ''
  AND NOT EXISTS (SELECT FROM billing_jobuser p WHERE p.tenant_id = j.tenant_id AND p.name = j."user")
ORDER BY 1, 2 ON CONFLICT DO NOTHING
"""
"""Gives each user of the month's jobs a number; whoever has one keeps it."""

ALLOCATED_SUMS = """
WITH run AS (
    SELECT *, greatest(CASE WHEN meter = '' THEN ended ELSE started + 1 END - started - suspended, 0) AS held
    FROM file WHERE started IS NOT NULL
), used AS (
    SELECT cluster_id, 'gpu' AS resource, share_den AS den, gpus::HUGEINT * share_num * held AS num FROM run
    UNION ALL SELECT cluster_id, 'cpu', 1000, cpu_milli::HUGEINT * held FROM run
    UNION ALL SELECT cluster_id, 'memory', 1024, memory_mib::HUGEINT * held FROM run
    UNION ALL SELECT cluster_id, 'gpu-memory', 1024, gpu_memory_mib::HUGEINT * held FROM run
    UNION ALL SELECT cluster_id, 'billing', 1, billing::HUGEINT * held FROM run
    UNION ALL SELECT cluster_id, meter, share_den, quantity::HUGEINT * 3600 * held FROM run WHERE meter <> ''
)
SELECT cluster_id, resource, den, sum(num) FROM used GROUP BY ALL
"""
"""For DuckDB: what records held, as `prove` counts it, by (cluster, resource, denominator) in resource-seconds."""

RATED_SUMS = """
SELECT project_id, period_id, price_id, payer_id, resource, verdict, share_den, sum(units::HUGEINT * share_num),
       count(*)
FROM file GROUP BY ALL
"""
"""For DuckDB: what is rated, by all that the ledger's sums of a month are kept apart by."""
