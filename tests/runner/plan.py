"""plan.py - which tests there are, in which builds, and which of them a command means."""

import fnmatch
import json
import os
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A build runs the tests of the suites `suites`, or all if there are none, but never those of the suites `without`. There a
# test takes `slower` times the processor time that tests/runner/seconds.txt says.
Build = namedtuple('Build', 'dir options suites without slower')
TEST = [Build('build', ['-Dtests=enabled'], [], ['check', 'interop'], 1)]
# These are quick to compile: line numbers are all that a report needs, and the ordinary build has the warnings. It alone
# has kernels for GPUs: without a GPU no test looks into them. The linker gold takes half the time where binutils has it.
LINK = '-Wl,--no-gc-sections' + (' -fuse-ld=gold' if shutil.which('ld.gold') else '')
QUICK = ['-Dtests=enabled', '-Dcuda=disabled', '-Doptimization=1', '-Dc_args=-g1 -w', '-Dcpp_args=-g1 -w',
         f'-Dc_link_args={LINK}', f'-Dcpp_link_args={LINK}']
CHECK = [
    Build('build', ['-Dtests=enabled'], ['check', 'interop'], [], 1),
    # The failpoints are in the build with the address sanitizer, so that failures are looked into as well.
    Build('build-asan', [*QUICK, '-Dfailpoints=true', '-Db_sanitize=address,undefined', '-Db_lundef=false'],
          [], ['check', 'interop', 'ordinary'], 3),
    Build('build-tsan', [*QUICK, '-Db_sanitize=thread', '-Db_lundef=false'], ['tsan'], [], 5),
]

SECONDS_FILE = Path(__file__).with_name('seconds.txt')
SECONDS_LEAST = 2  # of tests that are not in it

# seconds: of processor time, in this build. wall_s: by the clock, for the order alone. weight: how many of the places for
# tests it takes; None: all of them.
Test = namedtuple('Test', 'build name suites command env seconds wall_s weight')


class Unknown(Exception):
    """The command names a test or a group that no build has."""


def introspect(build, what):
    return json.loads((ROOT / build.dir / 'meson-info' / f'intro-{what}.json').read_text())


def suites_of(row):
    return [name.split(':')[-1] for name in row['suite']]


def wanted_by(build, suites):
    return (not build.suites or bool(set(suites) & set(build.suites))) and not set(suites) & set(build.without)


def parse_seconds(text):
    """Seconds of processor time and by the clock by name, from lines "NAME SECONDS SECONDS"; # begins a comment."""
    rows = (line.partition('#')[0].split() for line in text.splitlines())
    return {row[0]: (int(row[1]), int(row[2])) for row in rows if row}


def tests_of(build):
    found, seconds = [], parse_seconds(SECONDS_FILE.read_text())
    for row in introspect(build, 'tests'):
        suites = suites_of(row)
        if not wanted_by(build, suites):
            continue
        # PyTorch computes for as long as it starts; most other tests wait more than they compute.
        weight = 3 if 'interop' in suites else 1
        cpu_s, wall_s = seconds.get(row['name'], (SECONDS_LEAST, 1))
        found.append(Test(build, row['name'], suites, row['cmd'], row['env'], cpu_s * build.slower, wall_s * build.slower,
                          weight if row['is_parallel'] else None))
    return found


def programs_of(build):
    """The files that the build's tests need."""
    needed = {target for row in introspect(build, 'tests') if wanted_by(build, suites_of(row)) for target in row['depends']}
    return [os.path.relpath(name, ROOT / build.dir) for target in introspect(build, 'targets')
            if target['id'] in needed for name in target['filename']]


def compile_in(build):
    """Compiles everything in the build of `make test`, and in the others what their tests need."""
    options = list(build.options)
    if build.dir == 'build' and os.environ.get('CI'):
        options += ['-Dwerror=true', '-Dc_args=-g1', '-Dcpp_args=-g1']  # nobody debugs it: line numbers are enough

    def run_build(*words):
        command = [ROOT / 'scripts/build', '--quiet', *words, build.dir, *options]
        return subprocess.run(command, stdin=subprocess.DEVNULL).returncode == 0

    if build in TEST:
        return run_build()
    return run_build('--configure') and run_build('--only', ' '.join(programs_of(build)))


def label(test):
    return f'{test.build.dir}:{test.name}'


def means(word, name, suites, labelled):
    """Whether the word is the name of the test, with * in it or not, one of its groups, or BUILD:NAME."""
    return word in suites or fnmatch.fnmatch(name, word) or fnmatch.fnmatch(labelled, word)


def is_in_ordinary_build(word):
    """Whether the ordinary build has a test that the word means, whichever command runs it."""
    build = TEST[0]
    return any(means(word, row['name'], suites_of(row), f'{build.dir}:{row["name"]}') for row in introspect(build, 'tests'))


def choose(tests, words, for_check):
    """Those of @tests that one of @words means. @for_check: they are those of `make check`."""
    for word in words:
        if not any(means(word, test.name, test.suites, label(test)) for test in tests):
            if is_in_ordinary_build(word):
                here, there = ('check', 'test') if for_check else ('test', 'check')
                raise Unknown(f'"{word}" is not among the tests of `make {here}`: use make {there} TESTS={word}')
            groups = sorted({suite for test in tests for suite in test.suites})
            raise Unknown(f'no test and no group is called "{word}"; groups are {", ".join(groups)}, and --list shows the tests')
    return [test for test in tests if any(means(word, test.name, test.suites, label(test)) for word in words)]
