"""Who works on the demonstration clusters, on what, when and for how long."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE, HOUR, DAY = 60, 3600, 86_400

Range = tuple[int, int, int]
"""Weight, shortest, longest: a run lasts a random number of seconds of a range chosen by weight."""

SHORT: tuple[Range, ...] = (
    (45, 40, 8 * MINUTE),
    (40, 8 * MINUTE, HOUR),
    (13, HOUR, 4 * HOUR),
    (2, 4 * HOUR, 9 * HOUR),
)
MIXED: tuple[Range, ...] = (
    (22, 30, 10 * MINUTE),
    (33, 10 * MINUTE, 2 * HOUR),
    (32, 2 * HOUR, 9 * HOUR),
    (11, 9 * HOUR, 30 * HOUR),
    (2, 30 * HOUR, 4 * DAY),
)
LONG: tuple[Range, ...] = (
    (16, 2 * MINUTE, 30 * MINUTE),
    (26, HOUR, 8 * HOUR),
    (42, 8 * HOUR, 40 * HOUR),
    (16, 40 * HOUR, 6 * DAY),
)

# Submissions by hour of the day, out of 24,000 a day. People submit before lunch and before going home.
OFFICE = (
    *(200, 150, 100, 100, 100, 150, 300, 700),
    *(1400, 2000, 2300, 2100, 1400, 1700, 2200, 2200),
    *(2100, 1800, 1100, 600, 500, 400, 250, 150),
)
ALWAYS = (1000,) * 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One kind of Slurm job of one account."""

    account: str
    names: tuple[str, ...]
    users: tuple[str, ...]
    model: str  # of GPU; "" for jobs on processors alone
    sizes: tuple[tuple[int, int], ...]  # weight, GPUs (or nodes' worth of 16 cores for processor jobs)
    lasts: tuple[Range, ...]
    daily: int  # submissions on a weekday, in hundredths
    weekend: int = 35  # per cent of a weekday
    hours: tuple[int, ...] = OFFICE
    queue: str = "gpu"
    preemptible: int = 0  # per cent of the jobs
    tasks: tuple[int, int] = (1, 1)  # of an array: fewest and most


BUSY = {
    "llm-pretrain": 91, "llm-eval": 48, "speech-synthesis": 83, "protein-folding": 74, "cryo-em": 57,
    "vision-lab": 69, "robotics": 38, "climate-emulation": 88, "orbit-sim": 44, "visitors": 12,
}  # fmt: skip
"""Per cent that the GPUs of an account's jobs work, of most jobs."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Nodes of one kind. GPU jobs take cores and memory in proportion to their GPUs."""

    prefix: str
    model: str
    count: int
    gpus: int
    cores: int
    memory_gib: int


ATLAS = (
    Machine("atlas-h", "h100", 6, 8, 112, 1920),
    Machine("atlas-a", "a100", 4, 4, 64, 512),
    Machine("atlas-l", "l40s", 3, 4, 48, 384),
)
HELIX = (
    Machine("helix-g", "a40", 5, 4, 48, 384),
    Machine("helix-c", "", 6, 0, 64, 256),
)
"""Of other models than ATLAS: each kind of work finds its cluster by the model that it asks for."""

WORK = (
    # Halcyon Labs
    Work(
        account="llm-pretrain",
        names=("pretrain-7b", "pretrain-13b-ctx32k", "continue-pretrain-code", "sft-7b", "dpo-7b"),
        users=("mkowalski", "jtanaka", "sfischer"),
        model="h100",
        sizes=((3, 4), (5, 8), (2, 16)),
        lasts=LONG,
        daily=430,
        weekend=60,
    ),
    Work(
        account="llm-eval",
        names=("eval-mmlu", "eval-humaneval", "eval-longbench", "red-team-suite"),
        users=("jtanaka", "rpatel", "ci-runner"),
        model="h100",
        sizes=((8, 1), (2, 2)),
        lasts=SHORT,
        daily=560,
        weekend=80,
        hours=ALWAYS,
        tasks=(2, 9),
    ),
    Work(
        account="speech-synthesis",
        names=("vocoder-train", "tts-multilingual", "align-corpus", "prosody-ablation"),
        users=("lnguyen", "odubois"),
        model="a100",
        sizes=((5, 1), (3, 2), (2, 4)),
        lasts=MIXED,
        daily=1700,
    ),
    # Institut für Biophysik
    Work(
        account="protein-folding",
        names=("fold-monomer", "fold-multimer", "msa-search", "relax-structures"),
        users=("kweber", "ahoffmann", "ysilva"),
        model="a40",
        sizes=((8, 1), (2, 2)),
        lasts=MIXED,
        daily=480,
        tasks=(2, 8),
    ),
    Work(
        account="cryo-em",
        names=("motion-correction", "particle-picking", "refine3d-k2", "classify2d"),
        users=("ahoffmann", "tmeyer"),
        model="a40",
        sizes=((5, 1), (3, 2), (2, 4)),
        lasts=MIXED,
        daily=1650,
    ),
    Work(
        account="md-simulation",
        names=("gromacs-membrane", "namd-channel", "equilibrate", "analyse-trajectories"),
        users=("ysilva", "bkraus"),
        model="",
        sizes=((6, 1), (3, 2), (1, 4)),
        lasts=MIXED,
        daily=2600,
        weekend=50,
        queue="cpu",
    ),
    # Lakeside University
    Work(
        account="vision-lab",
        names=("train-detector", "nerf-city-block", "diffusion-finetune", "sweep-augment", "distill-vit"),
        users=("echen", "mrossi", "agarcia", "pjohnson"),
        model="a100",
        sizes=((6, 1), (3, 2), (1, 4)),
        lasts=MIXED,
        daily=1950,
        weekend=70,
        preemptible=55,
    ),
    Work(
        account="robotics",
        names=("ppo-quadruped", "sim2real-grasp", "isaac-rollouts", "offline-rl"),
        users=("dokafor", "hlindqvist"),
        model="l40s",
        sizes=((7, 1), (2, 2)),
        lasts=MIXED,
        daily=1150,
        weekend=70,
        preemptible=40,
        tasks=(1, 3),
    ),
    Work(
        account="climate-emulation",
        names=("emulator-era5", "downscale-europe", "ensemble-member"),
        users=("mrossi", "svandijk"),
        model="h100",
        sizes=((6, 1), (4, 2)),
        lasts=LONG,
        daily=260,
        preemptible=70,
    ),
    Work(
        account="vision-lab",
        names=("interactive", "debug", "jupyter"),
        users=("echen", "agarcia", "pjohnson"),
        model="l40s",
        sizes=((1, 1),),
        lasts=SHORT,
        daily=1200,
        weekend=15,
        queue="interactive",
    ),
    # Orbit Robotics
    Work(
        account="orbit-sim",
        names=("arm-pick-place", "domain-randomize", "policy-sweep"),
        users=("mhaddad", "tsingh"),
        model="l40s",
        sizes=((6, 1), (3, 2)),
        lasts=MIXED,
        daily=420,
    ),
    # Nobody's yet
    Work(
        account="visitors",
        names=("tutorial", "benchmark", "hello-gpu"),
        users=("guest01", "guest02", "guest07"),
        model="l40s",
        sizes=((9, 1), (1, 2)),
        lasts=SHORT,
        daily=400,
        weekend=10,
        queue="interactive",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A Kubernetes deployment: replicas that run until the next rollout, for ever."""

    namespace: str
    name: str
    owner: str
    replicas: int
    gpus: int = 1
    profile: str = ""
    share: tuple[int, int] = (1, 1)
    rollout: tuple[int, int] = (6, 16)  # days between two
    cores: int = 8
    memory_gib: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebooks:
    """People who start a notebook server on a MIG slice on most weekdays."""

    namespace: str
    users: tuple[str, ...]
    profile: str
    share: tuple[int, int]
    likely: int  # per cent of weekdays
    cores: int = 2
    memory_gib: int = 12


SERVICES = (
    Service(namespace="chat-inference", name="llama-chat", owner="svc-deploy", replicas=6),
    Service(namespace="chat-inference", name="reranker", owner="svc-deploy", replicas=2),
    Service(
        namespace="embeddings",
        name="embedder",
        owner="svc-deploy",
        replicas=4,
        profile="3g.20gb",
        share=(3, 7),
        cores=4,
        memory_gib=24,
    ),
    Service(
        namespace="voice-api",
        name="tts-server",
        owner="svc-deploy",
        replicas=2,
        profile="3g.20gb",
        share=(3, 7),
        cores=4,
        memory_gib=24,
    ),
)
NOTEBOOKS = (
    Notebooks(
        namespace="notebooks",
        users=("echen", "mrossi", "agarcia", "pjohnson", "svandijk"),
        profile="1g.5gb",
        share=(1, 7),
        likely=70,
    ),
    Notebooks(
        namespace="teaching",
        users=tuple(f"student{number:02}" for number in range(1, 19)),
        profile="1g.5gb",
        share=(1, 7),
        likely=55,
    ),
)
NIMBUS_GPUS = {"": 16, "1g.5gb": 4 * 7, "3g.20gb": 4 * 2}
"""What nimbus has of each: 16 whole A100, 4 cut in seven, 4 cut into two of three sevenths."""
