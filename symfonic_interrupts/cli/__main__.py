"""`python -m symfonic_interrupts.cli`, where the script is not on the path. It must do nothing that the script does not."""

from symfonic_interrupts.cli import main

main()
