"""What GPUs were held for and what came of it: allocated, effective, waste and unknown, in GPU-seconds and money.

allocated is what runs held; effective the part of it that their devices worked; waste the part that telemetry covered
and no device worked; unknown the part that no telemetry covers. `unknown` is never waste.
"""
