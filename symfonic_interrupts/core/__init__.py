"""What all rooms share: the hub, effects and how they are performed, rows, executions, checkpoints, the lease, results."""
