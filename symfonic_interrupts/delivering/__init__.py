"""Delivering stored answers: what checkpoints say (evidence), what is next (planner), doing it (drive, deliverer), recovery."""
