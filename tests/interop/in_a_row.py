"""in_a_row.py 'PROGRAM [ARGUMENT...]'... - run Python programs, one after another in one process. Their names are
those of files in this folder, or paths.

To import PyTorch takes longer than most of what a program tries. What the process has left of one program, such as groups that
have failed, is there for the next one.
"""

import runpy
import sys
from pathlib import Path

if __name__ == '__main__':
    for words in [line.split() for line in sys.argv[1:]]:
        sys.argv = words
        runpy.run_path(str(Path(__file__).parent / words[0]), run_name='__main__')
