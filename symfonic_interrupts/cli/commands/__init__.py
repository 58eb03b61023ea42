"""The commands, one module per group. No module here imports another; what they share is in `symfonic_interrupts.cli`."""
