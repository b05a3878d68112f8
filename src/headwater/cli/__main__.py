"""`python -m headwater.cli`: the command line without the console script."""

import sys

from headwater.cli import main

sys.exit(main())
