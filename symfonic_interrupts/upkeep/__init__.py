"""What runs beside answers: the janitor that expires and purges, the worker that does it all again and again."""
