"""What is wrong with a row in quarantine: the sentence of each code, with its values filled in. As `messages`."""

from __future__ import annotations

from collections.abc import Mapping


def _(text: str) -> str:
    """Marks a sentence for gettext, which translates it where it is said."""
    return text


SENTENCES: Mapping[str, str] = {
    # of any source
    "before-the-epoch": _("It starts or ends in 1970 or before: that is a clock that was never set."),
    "end-before-start": _("It ends at {end}, before it starts at {start}."),
    "end-unknown": _("It runs, but nothing tells how long it has run so far."),
    "end-without-start": _("It has an end but no start."),
    "from-the-future": _("Its time {field} is {at}, after the clock here ({now}); check the zone."),
    "impossible-count": _("{field} = {count} for {seconds} s cannot be."),
    "impossible-share": _("A share of {share} of a GPU cannot be."),
    "impossible-text": _("It holds a character that no text has: a zero byte, or half of a pair."),
    "no-key": _("It has nothing that identifies it."),
    "suspended-too-long": _("It was suspended for {suspended} s of {seconds} s."),
    "too-long-name": _("Its key, account, user or GPU model is over {most} characters long."),
    # of files
    "job-step": _("It is a step of a job, whose time is inside its job's. Export with --allocations."),
    "joined": _("These lines, joined, do not make a row: one of them is probably cut off."),
    "repeated-column": _("The header names {column} more than once, and here they differ."),
    "too-long": _("The line is longer than 1 MiB; it is kept in pieces."),
    "too-many-fields": _(
        "The row has more fields than the header, so a field contains the separator. Export with a "
        "rarer one: sacct --delimiter '|#', and import with the same --delimiter."
    ),
    "truncated": _(
        "The row has too few fields: a line is cut off, or a field has a line break past mending."
    ),
    "unfinished": _(
        "The file ends within this line, so its last field may be cut off. Copy or export the file again; if "
        "it is complete, end its last line with a line break."
    ),
    "unfinished-job": _("The file ends within this job or before its end: copy or export it again."),
    # of accounting logs
    "grid-engine-rescheduled": _(
        "Job {job} was rescheduled while it ran, and Grid Engine wrote no times of that run: see its log for them, and "
        "send the run as pushed usage, or dismiss it."
    ),
    "log-field": _("{field} is {text}, which cannot be read."),
    "log-field-missing": _("It has no {field}: the record is cut off, or of another release."),
    "log-gpus": _("It held GPUs, and {field} ({text}) does not say how many: send the job as pushed usage."),
    "log-record": _("{text} is no record of {scheduler}."),
    "pbs-phases": _(
        "The job gave nodes back while it ran (pbs_release_nodes), so its record does not say what it held when."
    ),
    "pbs-run-without-end": _("Job {job} began again, and no record says when this run ended."),
    "pbs-suspension": _(
        "The job was suspended or resumed in another file, or while clocks went back: join the files of its days in "
        "their order and import them as one."
    ),
    # of Slurm
    "absurd-date": _("{column} {text} lies outside the years {first} to {last}."),
    "absurd-length": _("Start plus the elapsed time lies beyond the year {last}."),
    "clock-change": _(
        "{times} can be read in two ways, since clocks went back. Import the row again when the job has ended. Do not "
        "export in another time zone than the cluster has here: its jobs would be there twice."
    ),
    "job-id": _("The job id {text} is not a positive whole number; without it the row has no identity."),
    "negative-elapsed": _("{column} {text} is below zero."),
    "no-start": _("The row has no start although the job ran."),
    "no-submit": _("The row has no time of submission; without it the row has no identity."),
    "shape": _("The row has a field of an unknown kind: {reason}. Tell the developers of it."),
    "skipped-time": _(
        "{column} {text} does not exist in {zone}: clocks were put forward over it. Export again with the "
        "cluster's time zone as TZ."
    ),
    "state": _("State {text} is not a state; the fields of the row may have shifted."),
    "suspended": _("{suspended} seconds suspended are longer than the job."),
    "tres": _("AllocTRES has {text} where name=count belongs; it may be cut off."),
    "tres-count": _("AllocTRES has {name}={text}, which is not a whole number."),
    "tres-memory": _("AllocTRES has mem={text}, which is not a possible amount of memory."),
    "tres-mig": _("AllocTRES has the MIG slice {text}, which there is not."),
    "tres-shard": _(
        "It held shards of a GPU on {node}, and the cluster does not say how many a GPU has there: add them to the "
        'shares of the cluster, like shard = "1/4" of a model, then read the row again.'
    ),
    "tres-shard-parts": _(
        "It held shards of a GPU on {nodes}, and by the shares of the cluster a shard may be {parts} of a GPU there: "
        'name the nodes of each, like "shard@gpu[01-04]" = "1/4", then read the row again.'
    ),
    "tres-sum": _("The MIG slices in {text} do not add up to gres/gpu."),
    "tres-twice": _("AllocTRES names {name} twice."),
    "unreadable-count": _("{column} {text} is not a whole number."),
    "unreadable-duration": _("{column} {text} is not a length of time like {example}."),
    "unreadable-time": _("{column} {text} is not a time like 2026-01-31T08:30:00."),
    # of events that are pushed
    "event-field": _("{pointer}: {reason}."),
    "event-type": _("The type {type} is not one of {types}."),
    "not-one-row": _("The text holds {rows} rows, and an event is of one."),
    "too-old": _("Its time {field} is more than {days} days ago; what is older is not taken from a sender."),
    "sealed-month": _(
        "The rows of its month, {month}, stand in the files of the sealed month, which cannot be read: {reason} "
        "Import it again after that."
    ),
    "too-long-run": _("It lasted longer than {days} days: send what is longer in parts."),
    "dimension-not-declared": _(
        "{meter} has no dimension {name}; those are: {dimensions}. Add it to the meter, or leave it out."
    ),
    "dimension-text": _(
        "The dimension {name} is text of 1 to 100 characters without a comma, a semicolon or an equals sign."
    ),
    "dimensions-too-long": _("The dimensions are over {most} characters long together."),
    "meter-not-declared": _(
        "No meter {meter} is declared; those are: {meters}. Declare it, then send the sum again."
    ),
    "other-kind": _(
        "Its source and id name a run where this is a sum, or a sum where it is a run: give it an id of its own."
    ),
    "quantity-decimals": _("{quantity} has more than the {decimals} decimals by which {meter} counts."),
    "quantity-too-large": _("A sum of {meter} is at most {most}: send it in parts, with ids of their own."),
    "sum-too-long": _("It covers more than a day (25 hours): send a sum for each hour or day."),
    "sum-without-length": _("It ends at {end}, not after its start {start}."),
    # of Prometheus
    "impossible-devices": _("It asks for {count} devices, which is no count."),
    "impossible-fraction": _("{annotation}={text} is not a part of one GPU."),
    "negative-use": _("{metric} is below 0 in this hour, which no use can be."),
    "too-fine-fraction": _(
        "{annotation}={text} is a finer part of a GPU than is kept: write it with nine decimals or fewer."
    ),
    "unknown-fraction": _(
        "{annotation}={text} gives no share of a GPU; for memory the node's label nvidia.com/gpu.memory is needed too."
    ),
    "unknown-mig-profile": _("The MIG profile {profile} is not known: add its share of a {model}."),
    "unread-claim": _(
        "It holds devices by the resource claim {claim}, and no release of kube-state-metrics tells which ones."
    ),
    "unknown-replicas": _(
        "The device is shared, but the node does not say among how many ({label}): let kube-state-metrics export its "
        "labels, with --metric-labels-allowlist=nodes=[nvidia.com/*]."
    ),
}
