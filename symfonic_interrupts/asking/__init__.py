"""What runs in a node: points, plain interrupts, the door in front of a task, envelopes that bring answers."""
