"""peers.py - what the benchmarks of PyTorch have in common: options, and where figures go."""

import argparse
import json
import sys
from importlib.util import find_spec


def parse_arguments(description, *options):
    """The options (name, type, default, help) and --json. Others are ignored: scripts/bench passes those
    of ddp-bench to all programs of a benchmark. Leaves the program where there is no PyTorch."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    for name, kind, default, text in options:
        parser.add_argument(name, type=kind, default=default, help=f'{text} ({default})')
    parser.add_argument('--json', help='append every figure to this file, one JSON object a line')
    arguments, _ = parser.parse_known_args()
    if not find_spec('torch'):
        print(f'\n{sys.executable} has no PyTorch: its figures are left out.')
        sys.exit(0)
    return arguments


def duration_s(text):
    """What ddp-bench reads as a duration: 300ms, 2s or a number of seconds."""
    if text.endswith('ms'):
        return float(text[:-2]) / 1000
    return float(text.removesuffix('s'))


class Figures:
    """Appends to the file of --json, or drops what it is given."""

    def __init__(self, path):
        self.file = open(path, 'a', encoding='utf-8') if path else None

    def add(self, **figure):
        if self.file:
            print(json.dumps(figure, separators=(',', ':')), file=self.file, flush=True)


def print_row(*cells):
    print('| ' + ' | '.join(map(str, cells)) + ' |', flush=True)


def print_head(*cells):
    print()
    print_row(*cells)
    print('|' + '---|' * len(cells), flush=True)
