"""Hardware that fails pays by itself: jobs whose GPU or node failed are credited by an operator's rule."""
