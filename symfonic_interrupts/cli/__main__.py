"""`python -m symfonic_interrupts.cli`, for when the script is not on the path. It behaves exactly as the script does.

`python -m` puts the current directory first on the import path, so anyone who may write there could run code; a script does
not. The entry is therefore removed. (This package itself is imported before that; `python -P -m ...` covers that too.)
"""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from symfonic_interrupts.cli import main

main()
