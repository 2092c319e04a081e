"""The Kubernetes cluster: services that run for weeks, and notebooks on slices of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from clusters.connectors.base import UsageFact
from portal.dev.demo_data.cast import DAY, HOUR, MINUTE, NIMBUS_GPUS, NOTEBOOKS, SERVICES, Notebooks, Service

LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of pod names: no vowels, so no words
CULLED_AFTER = HOUR


def nimbus(*, seed: int, since: int, until: int) -> Iterator[UsageFact]:
    """The cluster's pods in the order of their start; never more of a profile than there is."""
    rng = Random(f"nimbus {seed}")  # noqa: S311 - not for secrets
    pods = [pod for service in SERVICES for pod in _service(rng, service, since, until)]
    notebooks = [pod for group in NOTEBOOKS for pod in _notebooks(rng, group, since, until)]
    running = pods.copy()
    for pod in sorted(notebooks, key=_begins):
        running = [other for other in running if (other.ended or other.seen_until or 0) > (pod.started or 0)]
        if _room(pod, running):
            running.append(pod)
            pods.append(pod)
    yield from sorted(pods, key=_begins)


def _begins(pod: UsageFact) -> tuple[int, str]:
    return pod.started or 0, pod.source_key


def _room(pod: UsageFact, running: list[UsageFact]) -> bool:
    """Whether a slice is free when the pod starts; those that started before it are the ones that count."""
    start = pod.started or 0
    in_use = sum(
        other.gpus
        for other in running
        if other.mig_profile == pod.mig_profile and (other.started or 0) <= start
    )
    return in_use + pod.gpus <= NIMBUS_GPUS[pod.mig_profile]


def _service(rng: Random, service: Service, since: int, until: int) -> Iterator[UsageFact]:
    begin = since + rng.randrange(6 * HOUR)
    while begin < until:
        end = begin + rng.randint(*service.rollout) * DAY + rng.randrange(-8 * HOUR, 8 * HOUR)
        revision = _letters(rng, 9)
        for _ in range(service.replicas):
            delay = rng.randrange(20, 150)
            last = end + rng.randrange(10, 19)  # the old pods drain before the new ones start
            yield _pod(
                rng,
                until,
                namespace=service.namespace,
                name=f"{service.name}-{revision}-{_letters(rng, 5)}",
                user=service.owner,
                profile=service.profile,
                share=service.share,
                gpus=service.gpus,
                cores=service.cores,
                memory_gib=service.memory_gib,
                started=min(begin + delay, until - 1),
                ended=last,
                state="Succeeded",
                priority="production",
            )
        begin = end


def _notebooks(rng: Random, group: Notebooks, since: int, until: int) -> Iterator[UsageFact]:
    for day in range(since // DAY, until // DAY + 1):
        weekend = (day + 3) % 7 >= 5
        for user in group.users:
            if rng.randrange(100) >= (group.likely // 7 if weekend else group.likely):
                continue
            start = day * DAY + 7 * HOUR + rng.randrange(9 * HOUR)
            while start < (day + 1) * DAY - 3 * HOUR:
                works = rng.randint(12 * MINUTE, 5 * HOUR)
                if since <= start < until:
                    yield _pod(
                        rng,
                        until,
                        namespace=group.namespace,
                        name=f"jupyter-{user}",
                        user=user,
                        profile=group.profile,
                        share=group.share,
                        gpus=1,
                        cores=group.cores,
                        memory_gib=group.memory_gib,
                        started=start,
                        ended=start + works + CULLED_AFTER,
                        state="Failed" if rng.randrange(100) < 3 else "Succeeded",
                        priority="interactive",
                    )
                start += works + CULLED_AFTER + rng.randint(HOUR // 2, 9 * HOUR)


def _pod(
    rng: Random,
    until: int,
    *,
    namespace: str,
    name: str,
    user: str,
    profile: str,
    share: tuple[int, int],
    gpus: int,
    cores: int,
    memory_gib: int,
    started: int,
    ended: int,
    state: str,
    priority: str,
) -> UsageFact:
    running = ended > until
    digits = f"{rng.getrandbits(128):032x}"
    uid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    resource = f"nvidia.com/mig-{profile}" if profile else "nvidia.com/gpu"
    return UsageFact(
        source_key=uid,
        account=namespace,
        user=user,
        job_id=name,
        name=name,
        qos="Guaranteed" if priority == "production" else "Burstable",
        priority_class=priority,
        gpus=gpus,
        gpu_model="a100",
        mig_profile=profile,
        gpu_share=share,
        cpu_milli=cores * 1000,
        memory_mib=memory_gib * 1024,
        nodes=1,
        node_list=f"nimbus-{'mig' if profile else 'gpu'}-{rng.randint(1, 4)}",
        requested=f"cpu={cores},memory={memory_gib}Gi,{resource}={gpus}",
        submitted=started - rng.randrange(4, 19),
        started=started,
        ended=None if running else ended,
        seen_until=until if running else None,
        state="Running" if running else state,
    )


def _letters(rng: Random, count: int) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(count))
