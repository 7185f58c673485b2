#!/usr/bin/env python3
"""test_attacks.py - every attack of SECURITY.md, played by the attackers that its table names.

Each file below attacks/ is one target. An argument names one of them ("files"); without any, all run.
"""

import importlib
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'lib'))
sys.path.insert(0, str(HERE / 'attacks'))


def main():
    flags = [word for word in sys.argv[1:] if word.startswith('-')]
    targets = [word for word in sys.argv[1:] if not word.startswith('-')]
    targets = targets or sorted(path.stem.removeprefix('attack_')
                                for path in (HERE / 'attacks').glob('attack_*.py'))
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f'attack_{target}'))
        for target in targets)
    result = unittest.TextTestRunner(verbosity=2 if '--verbose' in flags else 1).run(suite)
    return 0 if result.wasSuccessful() else 1


if __name__ == '__main__':
    sys.exit(main())
