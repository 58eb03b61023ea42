"""What runs in the background: the janitor that expires pauses, purging, and the worker that repeats rounds."""
