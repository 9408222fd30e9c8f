"""A run: its training, its folder, checkpoints, sinks, evaluations and report."""
