"""The command line that runs this same corral, independent of the working directory."""

import sys
from typing import Final

# -P: else Python searches the working directory first, and would import a file of a user's there
# that is named like one of our modules.
COMMAND: Final = (sys.executable, "-P", "-m", "corral")
