"""Slurm over slurmrestd: every API version from v0.0.38 (Slurm 22.05) on."""
