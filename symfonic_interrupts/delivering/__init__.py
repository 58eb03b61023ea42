"""What moves a thread on: what is there (evidence), what comes next (planner), doing it (deliverer), recovery."""
