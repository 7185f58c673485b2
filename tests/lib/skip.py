"""skip.py - how a test against the program of others says that it cannot be run here, for all of its cases."""

import os
import sys

SKIPPED = 77


def skip_program(why, demanded_by='DDPRUN_INTEROP'):
    """End this program. @why, a sentence, is the last that it prints. With the variable @demanded_by it has failed."""
    print(why)
    sys.exit(1 if os.environ.get(demanded_by) == '1' else SKIPPED)


def need_torch(python):
    if not os.access(python, os.X_OK):
        skip_program(f"PyTorch is missing: {python or 'INTEROP_PYTHON'} does not exist; 'scripts/setup interop' installs it")
