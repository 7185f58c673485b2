"""What shells complete: the real bash, in a shell of its own; and zsh and fish, where they are installed, find no
mistake in what is written for them."""

import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path(os.environ.get('COMPLETIONS', ROOT / 'build/docs/completions'))

ASK = '''
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
compopt() { :; } # there is no completion going on
function=$(complete -p "$1"); function=${function#*-F }; ${function%% *}
printf '%s\\n' "${COMPREPLY[@]}"
'''


def complete(*words):
    done = subprocess.run(['bash', '-c', ASK, 'bash', str(PLACE / 'bash' / words[0]), *words], capture_output=True, text=True,
                          check=True)
    return done.stdout.split()


class Completions(unittest.TestCase):
    def test_bash(self):
        self.assertEqual(complete('ddprun', '--numa'), ['--numa-binding='])
        self.assertEqual(complete('ddprun', '--numa-binding', '=', 'e'), ['exclusive'])
        self.assertEqual(complete('ddprun', '--numa-binding', ''), ['node', 'socket', 'exclusive', 'core-complex'])
        self.assertIn('--standalone', complete('ddprun', '--'))
        self.assertEqual(complete('ddprun', '--max-restarts', ''), [])
        self.assertEqual(complete('ddprun', str(ROOT / 'READ')), [str(ROOT / 'README.md')])
        self.assertEqual(complete('ddprund', '--adv'), ['--advertise='])
        self.assertEqual(complete('ddpctl', 'd'), ['dump', 'drain', 'doctor'])
        self.assertEqual(complete('ddpctl', 'explain', '--j'), ['--json'])
        self.assertEqual(complete('ddpctl', 'template', '--kind', '=', ''), ['job', 'jobset', 'ddprund'])
        self.assertEqual(complete('ddp-perf', 'all'), ['allreduce', 'allgather', 'alltoall'])
        self.assertEqual(complete('ddp-perf', 'allreduce', '--device', '=', 'c'), ['cuda', 'cpu'])
        self.assertEqual(complete('ddp-perf', 'tune', '--o'), ['--output='])

    def test_every_option_is_there(self):
        text = subprocess.run([DDPRUN, '--help'], capture_output=True, text=True, check=True).stdout
        names = set(re.findall(r'^  (?:-\w,|   ) (--[\w-]+)', text, re.MULTILINE))
        self.assertGreater(len(names), 50)
        self.assertEqual({word.rstrip('=') for word in complete('ddprun', '--')}, names)

    def test_the_program_prints_them_too(self):
        for shell, file in (('bash', 'ddprun'), ('zsh', '_ddprun'), ('fish', 'ddprun.fish')):
            done = subprocess.run([DDPRUN, f'--print-completion={shell}'], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, (PLACE / shell / file).read_text())

    def test_other_shells_can_read_them(self):
        for shell in ('bash', 'zsh', 'fish'):
            if shutil.which(shell) is None:
                continue
            for file in (PLACE / shell).iterdir():
                if file.is_file():
                    subprocess.run([shell, '-n', file], check=True, capture_output=True)


if __name__ == '__main__':
    unittest.main()
