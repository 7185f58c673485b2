"""strangers.py - another user of the machine: a uid of its own, no group, no token.

To become one takes root of a machine or container; elsewhere the tests that need a stranger are skipped.
"""

import json
import os
import shutil
import subprocess
import tempfile
import traceback
import unittest
from pathlib import Path

STRANGER = 65534


def can_become_one():
    try:
        return subprocess.run(['true'], user=STRANGER, group=STRANGER, extra_groups=[], check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


needs_strangers = unittest.skipUnless(can_become_one(), 'a process may not become another user here: that takes root')


def reachable(case, program):
    """A copy of @program that everybody may run: the checkout may lie in root's home, where nobody else can go."""
    folder = Path(tempfile.mkdtemp(prefix='ddprun_reachable_', dir='/tmp'))
    case.addCleanup(shutil.rmtree, folder)
    folder.chmod(0o755)
    copy = Path(shutil.copy(program, folder))
    copy.chmod(0o755)
    return str(copy)


def as_stranger(attack, uid=STRANGER):
    """What attack() returns in a child process of user @uid; it has to fit into JSON.

    An exception there is an AssertionError here, with the child's traceback.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            answer = {'value': attack()}
            code = 0
        except BaseException:  # pylint: disable=broad-except
            answer = {'fault': traceback.format_exc()}
        try:
            with os.fdopen(writer, 'w', encoding='utf-8') as file:
                json.dump(answer, file)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, encoding='utf-8') as file:
        text = file.read()
    os.waitpid(pid, 0)
    answer = json.loads(text)
    if 'fault' in answer:
        raise AssertionError(f'the stranger failed:\n{answer["fault"]}')
    return answer['value']
