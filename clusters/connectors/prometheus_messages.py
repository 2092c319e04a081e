"""What a person is told of each `ConnectorError` of options: its sentence by its code."""

from __future__ import annotations

from collections.abc import Mapping


def _(text: str) -> str:
    """Marks a sentence for gettext, which translates it where it is said."""
    return text


SENTENCES: Mapping[str, str] = {
    "option-no-table": _("The option {key} has to be a table."),
    "option-shard": _(
        "The option {key} has the row {profile}: write shard, or shard@ and nodes as Slurm lists them, like "
        '"shard@gpu[01-04]".'
    ),
    "option-share": _(
        "The option {key} has {value} for {profile} of {model}: write the part of a whole GPU as text, like "
        '"1/7".'
    ),
    "option-matcher": _(
        'The matcher {matcher} is none: write it as cluster="x", several with commas between.'
    ),
    "option-metric-name": _("{metric} is no name of a metric: write one like {example}."),
    "option-divisor": _("The divisor of utilisation has to be above 0."),
    "option-preset-missing": _("Say with preset whose queue is the account: {presets}."),
    "option-account-label-missing": _("Name the label that holds the account."),
    "option-divisor-missing": _(
        "It is not known what {metric} counts in: give the divisor that makes 0 to 1 of it."
    ),
    "option-label-name": _("{label} is no label name: write it as kube-state-metrics does, like label_team."),
    "option-unknown": _("There is no option {key}; allowed: {allowed}."),
    "option-of-pods": _(
        "The option {key} is of pods, which the preset {preset} does not read; allowed with it: {allowed}."
    ),
    "option-account-from-missing": _(
        "The option account_label needs account_from: 'namespace label' or 'pod label'."
    ),
    "option-account-label-unnamed": _("The option account_from is {value}: name it, as account_label."),
    "options-no-table": _("Options are a table."),
    "option-no-text": _("The option {key} has to be text of one line, in quotes."),
    "option-no-list": _("The option {key} has to be a list of texts."),
    "option-no-choice": _("The option {key} is {value}; allowed: {allowed}."),
    "option-unknown-key": _("The option {key} has no key {name}; allowed: {allowed}."),
    "option-no-number": _('The option {key} has to be a number: 100, or as text "0.5".'),
    "option-no-flag": _("The option {key} has to be true or false."),
    "option-nothing-read": _(
        "With pods = false the connection reads nothing: say with tokens what it is for."
    ),
    "option-tokens-missing": _("The option tokens needs the key {name}."),
    "option-tokens-since": _(
        "The option tokens.since has to be the beginning of an hour, like 2026-12-01T00:00Z: hours before it are not "
        "read."
    ),
    "option-tokens-served-by": _(
        "The option {key} has to be the place of the jobs that serve the model: CLUSTER/ACCOUNT or "
        "CLUSTER/ACCOUNT/JOB."
    ),
    "option-tokens-served-twice": _("Two models of tokens.served_by have {place}: name the job of each."),
    "option-volumes-alone": _("The option volumes needs pods: both are of the same kube-state-metrics."),
    "option-volume-label-alone": _(
        "The option volume_label needs volumes: it names the account of their claims."
    ),
    "option-use-alone": _(
        "The option use needs pods and cpu_memory: it counts what pods use beyond what is read of their requests."
    ),
    "option-use-unnamed": _("The option use has to name a declared meter: cpu, memory or both."),
    "option-tokens-unnamed": _("The options tokens.input and tokens.output have to name metrics."),
    "tokens-meter-changed": _(
        "The meter {meter} was changed or removed while its sums were read; the next sync reads them again."
    ),
    "option-no-expression": _(
        "The option {key} is {value}: write a regular expression of names as kube-state-metrics spells them, like"
        " nvidia_com_(gpu|mig_.+)(_shared)?."
    ),
}
