"""`python -m stagecoach.cli`: the command where it is not installed as a script."""

import sys

from stagecoach.cli.main import main

sys.exit(main())
