"""What jobs that wait or run cost, written where their users look: into the scheduler's own list of jobs."""
