"""`python -m steprail_scripted`."""

import sys

from steprail_scripted.cli import main

sys.exit(main())
