"""How corral starts another corral: the one that it is, whatever the working directory holds."""

import sys
from typing import Final

# Without -P the working directory is searched first, and a file there named like a module of ours
# or of the standard library would be run.
COMMAND: Final = (sys.executable, "-P", "-m", "corral")
