"""`python -m symfonic_interrupts.cli`, where the script is not on the path. It must do nothing that the script does not.

With `-m`, Python imports from the current directory first; a script does not, and whoever may write there would run in it.
(This package itself is found before this line can say so; `python -P -m ...` covers that, too.)
"""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from symfonic_interrupts.cli import main

main()
