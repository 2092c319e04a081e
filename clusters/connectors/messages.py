"""What a person is told of each `ConnectorError`: its sentence by its code, with its values filled in.

A code without a sentence is one itself. A sentence may leave a value out.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusters.connectors.gpustack.messages import SENTENCES as GPUSTACK
from clusters.connectors.kubernetes.messages import SENTENCES as KUBERNETES
from clusters.connectors.prometheus_messages import SENTENCES as OPTIONS


def _(text: str) -> str:
    """Marks a sentence for gettext, which translates it where it is said."""
    return text


SENTENCES: Mapping[str, str] = {
    **GPUSTACK,
    **KUBERNETES,
    **OPTIONS,
    # of any source over HTTP
    "answer-too-slow": _(
        "{address} gave no whole answer within {seconds} s; it is overloaded, or was asked for too much."
    ),
    "request-impossible": _(
        "The request to {address} cannot be made: check the base URL, and that the user, the token and the extra "
        "headers are single lines of plain letters."
    ),
    "connection-refused": _(
        "Nothing answers at {address}: check that the server, or the proxy before it, runs, and the name and "
        "port."
    ),
    "base-url-without-host": _(
        "The base URL must begin with http:// or https:// and name a host, like https://slurm.example.org:6820."
    ),
    "base-url-with-password": _(
        "The base URL holds a user or a password: give what a proxy wants as an extra header instead."
    ),
    "base-url-with-query": _("The base URL must end with its path: take off the ? or #."),
    "connect-timeout": _(
        "{address} did not take the connection within {seconds} s: check the address, the port and any firewall "
        "between."
    ),
    "broken-compression": _("{address} sent an answer whose compression is broken."),
    "unreachable": _("{address} cannot be reached: {reason}."),
    "base-url-unreadable": _("The base URL is not one: check its host and port."),
    "certificate-untrusted": _(
        "The certificate of {address} is not trusted ({reason}): give the CA that signed it, and check the name "
        "in the base URL."
    ),
    "tls-failed": _(
        "{address} and we could not agree on TLS ({reason}): check http against https, and whether it wants a "
        "client certificate."
    ),
    "socket-unreachable": _(
        "The socket {address} is not there or not ours to open: check its path and its permissions."
    ),
    "compressed-twice": _(
        "{address} sent an answer that is compressed more than once, which is not read: check the proxies before "
        "it."
    ),
    "answer-too-large": _("{address} answered with more than {mebibytes} MiB; ask for less."),
    "unavailable": _("{address} cannot answer now (HTTP {status})."),
    "rate-limited": _("{address} limits how often it is asked (HTTP 429)."),
    "broke-off": _("{address} broke its answer off: it, or a proxy before it, was stopped or crashed."),
    "broke-off-in-clear": _(
        "{address} broke its answer off: it, or a proxy before it, was stopped or crashed, or it speaks https "
        "only."
    ),
    "ca-unreadable": _("The CA certificate cannot be read: give it as PEM, with its BEGIN and END lines."),
    "client-certificate-unusable": _(
        "The client certificate and its key cannot be used: give both as PEM, the key without a passphrase, and "
        "check that they belong together."
    ),
    # of a connection as it is stored
    "no-slurm-connection": _(
        "{cluster} has no connection to a Slurm: give it one, as docs/how-to/connect-slurm.md says."
    ),
    "clock-missing": _("{address} does not tell its time."),
    "clocks-differ": _(
        "{difference} Nothing was read, since runs would begin and end in the wrong period and the watermark "
        "could pass what has not happened yet. Set the wrong clock right (`timedatectl set-ntp true`); the next "
        "pass reads on from the watermark."
    ),
    "credential-no-certificate": _("The {what} names {path}, which holds no certificate in PEM."),
    "credential-empty": _("The {what} names {path}, which is empty: is it being written?"),
    "credential-no-text": _("The {what} names {path}, which holds no text."),
    "credential-unreadable": _(
        "The {what} names {reason} It is read at each pass, where the workers run: make it readable to them, or "
        'give it as "env:NAME", which is kept.'
    ),
    "cluster-not-pulled": _("{cluster} is read from {source}: give it a kind that can be pulled."),
    "headers-unreadable": _("The extra headers that are kept cannot be read: enter them anew."),
    "header-control-characters": _("The header {header} has line breaks or other control characters."),
    "aws-keys-unreadable": _("The AWS keys that are kept cannot be read: enter them anew."),
    "aws-region": _("{region} is no region of AWS: write it as eu-central-1."),
    "aws-no-identity": _(
        "AWS gives this process no identity: neither AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE nor "
        "AWS_CONTAINER_CREDENTIALS_FULL_URI is set. Give the service account of the workers a role, or enter keys."
    ),
    "aws-no-token": _("{path}, which AWS_WEB_IDENTITY_TOKEN_FILE or its like names, cannot be read."),
    "aws-identity-refused": _("{address} gives no AWS keys to this process: {reason}"),
    "secret-unreadable": _("{reason}"),
    "watermark-ahead": _("{sentence}"),
    # of a Prometheus
    "prometheus-no-phases": _(
        "{address} has no {metric}: without it, pods that have ended cannot be told from running ones. Let "
        "kube-state-metrics export it and Prometheus keep it."
    ),
    "prometheus-logins": _(
        "The connection has more than one of user, bearer token and AWS key: keep the one that is meant."
    ),
    "kueue-no-quota": _(
        "{address} has no {metric} in this time: set metrics.enableClusterQueueResources in Kueue's "
        "configuration, and ask within the time that this server keeps."
    ),
    "prometheus-unavailable": _("{address} cannot answer now (HTTP {status}): {words}"),
    "prometheus-unreadable": _(
        "{address} sent JSON that is cut off, or is not what the query API documents; nothing of it is kept."
    ),
    "prometheus-warning": _(
        "{address} answered with a warning, so its answer may be incomplete and nothing of it is kept: {warnings}"
    ),
    "prometheus-rate-limited": _("{address} limits how often it is asked (HTTP 429): {words}"),
    "prometheus-query-failed": _("{address} could not work a query out (HTTP {status}): {words}"),
    "prometheus-query-refused": _(
        "{address} does not understand a query (HTTP {status}); check the matcher and the label names of the "
        "connection: {words}"
    ),
    "prometheus-redirect": _(
        "{address} sends us elsewhere ({location}), as a login page does: give the address of the query API "
        "itself."
    ),
    "prometheus-no-query-api": _(
        "{address} has no /api/v1/query (HTTP {status}): check the path of the base URL; Mimir's ends in "
        "/prometheus."
    ),
    "prometheus-not-json": _(
        "{address} answered with {content_type} instead of JSON: it is not the query API of a Prometheus."
    ),
    "prometheus-no-samples": _(
        "{address} has no {metric} since {since}: check that it is scraped, and the matcher of the connection."
    ),
    "prometheus-no-kube-state-metrics": _(
        "{address} has no series of kube-state-metrics between {since} and {until}: check that it is scraped, and"
        " the matcher of the connection."
    ),
    "prometheus-too-many-points": _(
        "{address} gives at most 11,000 points of a series in one answer: ask for a shorter time."
    ),
    "prometheus-too-many-samples": _(
        "{address} was asked for more samples than --query.max-samples allows: raise it, or ask for a shorter "
        "time."
    ),
    "prometheus-timed-out": _(
        "{address} gave up on a query after its own time limit (--query.timeout): {words}"
    ),
    "prometheus-limit": _("{address} has a limit on what one query may ask for: {words}"),
    "prometheus-login-refused": _(
        "{address} does not know us (HTTP {status}): check the user and password, the token, the AWS key or the "
        "headers of the connection."
    ),
    "prometheus-forbidden": _(
        "{address} does not let us read (HTTP {status}): check the user and password, the token, the AWS key or "
        "the headers of the connection."
    ),
    # of slurmrestd
    "slurm-not-operator": _(
        "{user} may be shown only a part of the jobs, without being told so, since its AdminLevel is not "
        "Operator: nothing was read. Let an administrator of Slurm run `{command}`."
    ),
    "slurmdbd-down": _(
        "slurmdbd behind {address}, or its database, is down; slurmctld answers and takes the token of {user}. "
        "Check them with `systemctl status slurmdbd mariadb`."
    ),
    "slurm-all-down": _(
        "Neither slurmctld nor slurmdbd behind {address} answers {user}: its token is not accepted, or both are "
        "down. `scontrol ping` and `sacctmgr show cluster` show the daemons; `scontrol token username={user} "
        "lifespan=31536000` makes a token."
    ),
    "slurm-no-account": _("Slurm's cluster {cluster} has no account {account}: see `sacctmgr show account`."),
    "slurm-several-clusters": _(
        "slurmdbd serves several clusters ({names}): write into the connection which one this is."
    ),
    "slurm-hold-too-late": _("Job {job} started or ended before it could be held."),
    "slurm-limits-changed": _("Somebody has changed the limits of {account}: {differences}. Plan again."),
    "slurm-limits-unsupported": _(
        "This Slurm ({release}) cannot have its limits set over REST: before 23.11 slurmrestd drops the change or"
        " crashes from it. Hold the account's waiting jobs and cancel running ones instead, or use `sacctmgr "
        "modify account`."
    ),
    "slurm-updates-unsupported": _(
        "This slurmrestd speaks v0.0.39 at most, which cannot hold or release jobs: use `scontrol hold` and "
        "`scontrol release`, or update to Slurm 23.11."
    ),
    "slurm-comments-unsupported": _(
        "This Slurm ({release}) cannot have comments of jobs written over REST: that needs v0.0.40 of its API "
        "(Slurm 23.11)."
    ),
    "slurm-comments-refused": _(
        "Slurm lets {user} write no comments of jobs: `sacctmgr modify user {user} set adminlevel=Administrator`. "
        "Everything else needs only Operator."
    ),
    "slurm-comment-without-effect": _(
        "Slurm took the comment of job {job} and does not have it: somebody else may write it, too."
    ),
    "slurm-cancel-refused": _("Slurm did not cancel job {job}: {words} ({number})."),
    "slurm-requeue-too-late": _("Job {job} ended or waits already, so it was not requeued."),
    "slurm-not-in-account": _("{cluster} has no association of the user in the account {account}."),
    "slurm-user-partitions": _(
        "The user has an association for each partition in the account {account}, and no limit spans several."
    ),
    "slurm-drains-nothing": _("Slurm ends jobs one by one: an account of it cannot be drained."),
    "slurm-requeue-unsupported": _(
        "This Slurm ({release}) cannot requeue jobs over REST: before 26.05 slurmrestd has no way to. Cancel them "
        "instead, use `scontrol requeuehold`, or update Slurm."
    ),
    "slurm-refused": _("{address} answered {path} with HTTP {status}{words}."),
    "slurm-not-json": _(
        "{address} answers with {content_type} where JSON is expected: a proxy's login page? Check the base URL "
        "and the extra headers."
    ),
    "slurm-form-unknown": _(
        "{address} answered {path} in a form that is not known ({reason}): update ClusterTab."
    ),
    "slurm-redirect": _("{address} sends us on to {location}: give that as the base URL."),
    "slurm-nothing-there": _("Slurm has nothing at {path}."),
    "slurm-denied": _(
        "Slurm does not let {user} do this: `sacctmgr modify user {user} set adminlevel=Operator`. Where it has "
        "that level, the hosts of slurmctld and slurmdbd did not know a user {user} when it was added: make it "
        "there (`useradd --system {user}`), then `scontrol reconfigure` and `sacctmgr reconfigure`."
    ),
    "slurm-question-refused": _(
        "{address} does not understand the question {path}{words}: its version is not one that this release was "
        "tried with."
    ),
    "slurm-no-path": _(
        "{address} has no {path}: Slurm was changed, or slurmrestd runs without that plugin (slurmrestd -s "
        "openapi/slurmctld,openapi/slurmdbd)."
    ),
    "slurm-job-refused": _("Slurm refuses it{words}."),
    "slurmctld-down": _(
        "slurmctld behind {address} does not answer{words}: check it with `scontrol ping`; older versions say the"
        " same of an expired token."
    ),
    "slurm-wordless": _(
        "{address} answered HTTP {status} without a word from Slurm: slurmrestd, or the proxy before it, is in "
        "trouble."
    ),
    "slurm-answer-cut": _("{address} sent an answer that breaks off in the middle."),
    "slurm-no-slurmrestd": _(
        "There is no slurmrestd at {address}, only something that answers 404: check the base URL and its path "
        "prefix."
    ),
    "slurm-no-token": _(
        "The connection has neither a token nor a JWT key: store the output of `scontrol token username={user} "
        "lifespan=31536000`."
    ),
    "slurm-no-user": _("The connection has no Slurm user: name the one the token is for."),
    "slurm-key-unreadable": _("The JWT key is not base64: store the output of `base64 -w0 jwt_hs256.key`."),
    "slurm-key-missing": _('{address} answered {path} without "{key}": nothing was taken from it.'),
    "slurm-no-accounting": _(
        "{address} offers no accounting: start slurmrestd with the openapi/slurmdbd plugin, and check that "
        "slurmdbd is configured."
    ),
    "slurm-too-old": _(
        "{address} speaks only v0.0.{version}: Slurm 22.05 or later is needed, which speaks v0.0.38. Import sacct"
        " files from older ones."
    ),
    "slurm-answer-too-large": _(
        "{address} answered {path} with more than {mebibytes} MiB: set SLURMRESTD_JSON=compact in slurmrestd's "
        "environment, which halves it on newer releases."
    ),
    "slurm-open-jobs-too-large": _(
        "{cause} The shortest window is asked for already, and the jobs that wait or run come in every one: set "
        "SLURMRESTD_JSON=compact in slurmrestd's environment, which halves the bytes on newer releases, or lower "
        "MaxJobCount."
    ),
    "slurm-other-cluster": _(
        "slurmrestd answers for the cluster {actual}, and this connection is for {expected}: correct the "
        "cluster's name in Slurm, or the address."
    ),
    "slurm-too-new": _(
        "Slurm's API {version} is newer than this release knows, and it counts other rows when asked as the older"
        " ones are: nothing was taken. Update ClusterTab, or import sacct files until then."
    ),
    "slurm-rows-of-several-clusters": _(
        "Rows of several clusters come ({names}), and the connection does not say which of them this is: write "
        "its ClusterName into the connection as Slurm's cluster name (slurm_cluster in a configuration file)."
    ),
    "slurm-cancel-without-effect": _(
        "Job {job} was cancelled and goes on all the same: look at it with `scontrol show job {job}`."
    ),
    "slurm-hold-without-effect": _(
        "Job {job} was held and is not: look at it with `scontrol show job {job}`."
    ),
    "slurm-requeue-without-effect": _(
        "Job {job} was requeued and does not wait: was it submitted with --no-requeue, or by salloc or srun?"
    ),
    "slurm-release-without-effect": _(
        "Job {job} was released and is still held: look at it with `scontrol show job {job}`."
    ),
    "slurm-limits-without-effect": _("Slurm took the limits of {account} and has others: {differences}"),
    "slurm-database-down": _(
        "slurmrestd at {address} cannot reach slurmdbd, or slurmdbd its database: check both."
    ),
    "slurm-database-or-token": _(
        "slurmrestd at {address} cannot open the accounting database: slurmdbd or its database is down, or the "
        "token of {user} is not valid (Slurm says the same of both)."
    ),
    "slurm-proxy-refused": _(
        "{address} refuses us (HTTP {status}): check what the proxy wants as extra headers."
    ),
    "slurm-login-refused": _(
        "Slurm behind {address} does not accept the token of {user}{words}: it is expired, made with another key "
        "or for another user. Make a new one with `scontrol token username={user} lifespan=31536000`."
    ),
    "slurm-token-expired": _(
        "The stored token expired on {end}: make a new one with `scontrol token username={user} "
        "lifespan=31536000` and store it."
    ),
    # of files
    "sacct-no-jobs": _('{file} has no "jobs" in it: make it with {command}'),
    "sacct-failed": _('sacct failed as it wrote {file} ("{words}"): export it again.'),
    "file-empty": _("{file} is empty."),
    "sacct-not-json": _(
        "{file} is not JSON. If it is text with columns, leave out --format; else make it with {command}"
    ),
    "sacct-job-too-large": _("A job in this file is larger than {mebibytes} MiB: is it a file of sacct?"),
    "sacct-brackets": _("The file is not JSON: a bracket closes what was never opened."),
    "log-other-format": _(
        "{file} is no accounting log of {scheduler}: none of its first lines is a record. The first is {line}."
    ),
    "opencost-other-format": _(
        "{file} is no answer of OpenCost's /allocation: save it as JSON, with cpuCoreHours, gpuHours and ramByteHours."
    ),
    "opencost-too-large": _("{file} has more than {mebibytes} MiB: ask OpenCost for a shorter window."),
    "pods-twice": _(
        "{cluster} is no cluster of the kind import: what a file of OpenCost tells would be billed beside its own pods "
        "and jobs. Make a cluster of the kind import for it."
    ),
    "spend-logs-other-format": _(
        "{file} is no export of LiteLLM_SpendLogs: write one request a line as a JSON object (of an array: jq -c "
        "'.[]'), or CSV with the table's columns. The first line is {line}."
    ),
    "tokens-twice": _(
        "{cluster} reads tokens from Prometheus already: those of a file would be billed beside them. Import into "
        "another cluster, or remove the option tokens of its connection."
    ),
    "file-changed": _("{file} changed while it was read: import it again."),
    "sacct-delimiter": _("The delimiter must be at least one character and no line break."),
    "sacct-other-columns": _("The file has a header line with other columns: leave out --columns."),
    "sacct-empty": _("{file} is empty: not even a header line is in it."),
    "file-irregular": _("{file} is not a file."),
    "file-missing": _("There is no file {path}."),
    "file-gzip-broken": _("{file} is a broken or cut gzip file: {reason}"),
    "file-unreadable": _("{file} cannot be read: {reason}."),
    "file-inflates": _(
        "{file} holds more than {times} times its own size: that is no accounting of jobs. If it is, unpack it "
        "and import it as plain text."
    ),
    "file-format": _("{file} is {format}: give it as plain text or gzip."),
    "file-torn": _("It ends in a torn line, though its name says how far it reaches: export it again."),
    "sacct-other-delimiter": _(
        "The header's columns are separated by {separator}, not by {delimiter}: import it with --delimiter "
        "{option}."
    ),
    "sacct-aligned": _(
        "The columns are aligned with blanks: run sacct with --parsable2. The command is: {command} (TZ: the "
        "time zone that the cluster has here)"
    ),
    "sacct-no-header": _(
        "There is no header line: run sacct without --noheader, or name the columns with --columns. The command "
        "is: {command} (TZ: the time zone that the cluster has here)"
    ),
    "sacct-no-listing": _(
        "This is not a listing of jobs: its columns are {columns} … The command is: {command} (TZ: the time "
        "zone that the cluster has here)"
    ),
    "sacct-columns-missing": _(
        "The export lacks {columns}. The command that gives all columns is: {command} (TZ: the time zone "
        "that the cluster has here)"
    ),
}
