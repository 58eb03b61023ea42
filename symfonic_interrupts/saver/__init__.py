"""What runs at a checkpoint: the wrapped saver opens pauses, notes what was used, and lets stored answers in."""
