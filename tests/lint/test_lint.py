#!/usr/bin/env python3
"""test_lint.py - each check of scripts/lint finds what it is for, at the right line, and no more.

A case is a small tree with faults in it. Words that the check on words looks for are put together
from halves, so that this file does not contain them.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LINT = Path(__file__).resolve().parents[2] / 'scripts' / 'lint'
API = 'rendezvous/include/ddprun/store.h'


def lint(root, check):
    """Exit status, set of "file:line", and everything that was printed."""
    done = subprocess.run([sys.executable, LINT, '--root', root, check], capture_output=True,
                          text=True)
    places = re.findall(r'^(\S+:\d+): ', done.stdout, re.MULTILINE)
    return done.returncode, set(places), done.stdout + done.stderr


class LintTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def write(self, path, *lines):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text('\n'.join(lines) + '\n')
        return target

    def expect(self, check, *places):
        status, found, output = lint(self.root, check)
        self.assertEqual(found, set(places), output)
        self.assertEqual(status, 1 if places else 0, output)
        self.assertNotIn('skipped:', output)

    def compile(self, source, output, *flags):
        (self.root / output).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(['gcc', *flags, '-o', self.root / output, self.root / source], check=True)

    def describe_build(self, name, kind, output, defined_in, sanitizer='none'):
        """What meson would have written about a build of one target."""
        self.write('build/meson-info/intro-targets.json', json.dumps([
            {'name': name, 'type': kind, 'filename': [str(self.root / output)],
             'defined_in': str(self.root / defined_in)}]))
        self.write('build/meson-info/intro-buildoptions.json',
                   json.dumps([{'name': 'b_sanitize', 'value': sanitizer}]))

    def test_format(self):
        output = lint(self.root, 'format')[2]
        if 'skipped:' in output:
            self.skipTest(output)
        self.write('.clang-format', (LINT.parents[1] / '.clang-format').read_text())
        self.write('base/good.c', 'int f(void);')
        self.write('base/bad.c', 'int f(void);', 'int  g( void );')
        self.expect('format', 'base/bad.c:2')

    def test_sizes_are_listed_and_do_not_fail(self):
        if shutil.which('ctags') is None:
            self.skipTest('ctags is not installed')
        crumb = ['int f{}(void)', '{{', '    return {};', '}}', '']
        self.write('base/crumbs.c', *(line.format(i, i) for i in range(3) for line in crumb))
        self.write('base/long.c', 'int g(void)', '{', *['    h();'] * 60, '    return 0;', '}')
        done = subprocess.run([sys.executable, LINT, '--root', self.root, '--sizes', 'banned'], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r'(?m)^base/crumbs\.c:1: the median of its 3 functions is 4 lines$')
        self.assertRegex(done.stdout, r'(?m)^base/long\.c:1: g\(\) has 64 lines$')
        self.assertNotRegex(done.stdout, r'(?m)^base/long\.c:1: the median')

    def test_banned_everywhere(self):
        self.write('cmd/bad.c', '/* strcpy(a, b) in a comment */',
                   'const char *s = "atoi(1)";', 'int n = atoi(s);', 'strcpy', '(a, s);',
                   'ops->system(1);', 'my_sleep(1); printf("a program may");',
                   'x = uv_default_loop ();')
        self.expect('banned', 'cmd/bad.c:3', 'cmd/bad.c:4', 'cmd/bad.c:8')

    def test_banned_in_libraries(self):
        self.write('base/parse.c', 'long n = strtol(text, &end, 10);')
        self.write('base/bad.c', 'snprintf(a, 1, "x");', 'printf("x");', 'exit(1);',
                   'fprintf(stderr,', '"x");', 'fputs("x", out);', 'char *p = malloc(1);',
                   'long n = strtol(text, &end, 10);')
        self.expect('banned', *(f'base/bad.c:{line}' for line in (2, 3, 4, 7, 8)))

    def test_includes(self):
        self.write('ARCHITECTURE.md', '```arrows', 'base        below all', 'worker/ring  schedules <- base',
                   'worker/api   functions <- ring', 'daemon       an agent <- base',
                   'cmd          programs <- daemon worker/api', '```')
        self.write('base/buf.h')
        self.write('base/buf_impl.h')
        self.write('daemon/agent.h')
        self.write('worker/ring/ring.h')
        self.write('base/bad.c', '#include "buf.h"', '#include <stdio.h>', '#include "ring.h"',
                   '#include <ddprun/status.h>', '#include <ddprun/store.h>', '#include <uv.h>')
        self.write('worker/ring/bad.c', '#include "buf.h"', '#include "ring.h"', '#include "agent.h"',
                   '/* #include "agent.h" */', '  # include <jansson.h>', '#include "buf_impl.h"')
        self.write('worker/api/good.c', '#include "ring.h"', '#include "buf.h"')
        self.write('daemon/bad.c', '#include <uv.h>', '#include <ddprun/comm.h>', '#include "ring.h"')
        self.write('examples/bad.c', '#include <ddprun/comm.h>', '#include "buf.h"')
        self.write('cmd/good.c', '#include "agent.h"', '#include "ring.h"', '#include <uv.h>')
        self.write('rendezvous/server/server.c', '#include <uv.h>')
        self.write('rendezvous/kv/kv.c', '#include <curl/curl.h>', '#include <uv.h>')
        self.expect('includes', 'base/bad.c:3', 'base/bad.c:5', 'base/bad.c:6', 'worker/ring/bad.c:3',
                    'worker/ring/bad.c:5', 'worker/ring/bad.c:6', 'daemon/bad.c:2', 'daemon/bad.c:3',
                    'examples/bad.c:2', 'rendezvous/kv/kv.c:1', 'rendezvous/kv/kv.c:2')

    def test_documents(self):
        self.write('README.md', 'Text', '', '    make demo', '', '```text', 'what it prints', '```', '', '```c',
                   'int main(void);', '```', '', '    make test', '', 'Then', '', '    make all')
        self.write('docs/a.md', '    not behind an empty line', '', '    first', '', '    the same block')
        self.write('tests/unit/test_a.py', 'from documents import block', "block('README.md', 'make demo')",
                   "block('README.md', 'make te' 'st')", "block('docs/a.md', 'second')")
        self.write('tests/integration/documents.txt', '# why', 'README.md | make test | not true', 'README.md | int | true',
                   'README.md | make nothing | ?', 'README.md | int m | also')
        self.expect('documents', 'README.md:17', 'docs/a.md:3', 'tests/unit/test_a.py:4', 'tests/integration/documents.txt:2',
                    'tests/integration/documents.txt:4', 'tests/integration/documents.txt:5')

    def test_versions(self):
        self.write('meson.build', "project('x',", "  version: '1.2.3',")
        self.write('debian/changelog', 'x (1.2.3) unstable')
        self.write('CHANGELOG.md', '# Changes', '', '## 1.2.2 (2031-05-06)')
        self.write('python/ddprun/version.py', 'VERSION = None')
        self.expect('versions', 'CHANGELOG.md:3', 'python/ddprun/version.py:1')

    def test_pictures(self):
        self.write('docs/benchmarks/rendezvous.json',
                   '{"benchmark": "run", "date": "2031-05-06", "commit": "abc1234", "machine": "Z80", "versions": "1"}',
                   '{"benchmark": "rendezvous", "nodes": 100, "form_ms": 12, "max": 20}',
                   '{"benchmark": "rendezvous", "nodes": 1000, "form_ms": 100, "max": 200}')
        folder = self.root / 'docs' / 'benchmarks'
        subprocess.run([sys.executable, LINT.with_name('draw-benchmarks'), folder], check=True, capture_output=True)
        self.expect('pictures')
        self.write('docs/benchmarks/store.svg', '<svg/>')
        self.write('docs/benchmarks/rendezvous.svg', '<svg/>')
        self.expect('pictures', 'docs/benchmarks/rendezvous.svg:1', 'docs/benchmarks/store.svg:1')

    def test_arrows_point_one_way(self):
        self.write('ARCHITECTURE.md', '```arrows', 'base    below all <- worker', 'worker  above <- base', '```')
        self.expect('includes', 'ARCHITECTURE.md:2')

    def test_folders(self):
        self.write('ARCHITECTURE.md', '```arrows', 'base    below all', 'worker  above <- base',
                   'worker/api  functions <- worker', '```')
        for number in range(26):
            self.write(f'base/b{number}.c')
        self.write('worker/ring.h')
        self.write('worker/api/ring.h')
        self.expect('folders', 'base/b0.c:1', 'worker/api/ring.h:1')

    def test_opening(self):
        self.write('base/good.c', '/*', ' * good.c - what it is.', ' */')
        self.write('base/none.c', '#include "none.h"')
        self.write('base/copied.c', '/*', ' * good.c - what it is.', ' */')
        self.expect('opening', 'base/none.c:1', 'base/copied.c:2')

    def test_comments(self):
        self.write('base/orphan.h', '/* text', ' */', '/* text', ' * and text', ' */', 'int x; /* text', '        */',
                   '/* text', ' * and text */', '/*', ' * text', ' */', '/**', ' * text', ' */')
        self.write('base/ruler.c', '/* --- a --- */', '/* ---- a ----------- */', '    /*---- a ---- */', '/* ---- a ---- */',
                   '/* --flag: is one of a program */', '/* a -- b */')
        self.write('base/list.c', '/*', ' * Text:', ' *   - an item, which', ' * was folded;', ' *   - an item;', ' * Text.', ' *',
                   ' *   1. a step', ' *      of two lines', ' *', ' * Text - with a dash.', ' */')
        self.write('base/table.c', '/*', ' * Text FIRST  row', ' *   SECOND  row, which', ' * was folded', ' *   THIRD  row', ' * Text', ' *',
                   ' *   FOURTH  row', ' * that was folded FIFTH  row', ' *', ' * Two  spaces alone.', ' */')
        self.write('base/wide.c', '/* ' + 'x' * 94 + ' */', '/* ' + 'x' * 95 + ' */')
        self.expect('comments', *(f'base/orphan.h:{line}' for line in (2, 5, 7)), *(f'base/ruler.c:{line}' for line in (1, 2, 3)),
                    'base/list.c:4', *(f'base/table.c:{line}' for line in (2, 4, 9)), 'base/wide.c:2')

    def test_words(self):
        self.write('docs/bad.md', 'fine', 'TO' 'DO: more', 'see /ho' 'me/someone/x',
                   'mkstemp("/tmp/XX' 'XXXX")')
        self.write('build/ignored.md', 'TO' 'DO')
        self.expect('words', 'docs/bad.md:2', 'docs/bad.md:3')

    def test_api_comments(self):
        self.write(API, '/**', ' * What it does.', ' */', 'DDP_API int ddp_a(void);',
                   'DDP_API int ddp_b(void);', '', 'DDP_API int ddp_c(void);',
                   '/* not for the manual */', 'DDP_API', 'int ddp_d(int a,', '          int b);')
        self.expect('api-comments', f'{API}:7', f'{API}:9')

    def test_headers(self):
        self.write(API, '#ifdef __cplusplus', 'typedef int fine;', 'int class;', '#else',
                   'int f(void);', 'size_t g(void);', '#endif')
        self.expect('headers', f'{API}:3', f'{API}:6')

    def test_symbol_lists(self):
        self.write(API, 'DDP_API int ddp_a(void);', '/* DDP_API int ddp_old(void); */',
                   '#define DDP_API')
        self.write('tests/api/libddpstore.sym', 'ddp_b')
        self.write('tests/api/libddpcomm.sym')
        status, _, output = lint(self.root, 'symbol-lists')
        self.assertEqual(status, 1)
        self.assertIn('ddp_a is missing in the list', output)
        self.assertIn('ddp_b is too much in the list', output)
        self.assertNotIn('ddp_old', output)

    def test_exports(self):
        library = 'build/rendezvous/libddpstore.so'
        self.write('tests/api/libddpstore.sym', 'ddp_a', 'ddp_gone')
        self.write('store.c', 'int ddp_a(void) { return 0; }', 'int ddpi_leaked(void) { return 1; }')
        self.describe_build('ddpstore', 'shared library', library, 'rendezvous/meson.build')
        self.expect('exports', 'tests/api/libddpstore.sym:1')
        self.compile('store.c', library, '-shared', '-fPIC')
        status, _, output = lint(self.root, 'exports')
        self.assertEqual(status, 1)
        self.assertIn('ddp_gone is missing', output)
        self.assertIn('ddpi_leaked is too much', output)
        self.assertNotIn('ddp_a ', output)

    def test_exports_are_skipped_without_a_build(self):
        status, _, output = lint(self.root, 'exports')
        self.assertEqual(status, 0)
        self.assertIn('exports: skipped: build/ is not configured', output)

    def test_mutable(self):
        self.write('base/bad.c', 'static const int fixed[] = {1};',
                   'const char *const words[] = {"a"};', 'int f(int i)', '{',
                   '    static int calls;', '    return fixed[i] + words[i][0] + ++calls;', '}',
                   'int shared = 1;', '__thread int per_thread;')
        self.compile('base/bad.c', 'build/bad.c.o', '-c', '-fPIC')
        subprocess.run(['ar', 'rcs', self.root / 'build/libbase.a', self.root / 'build/bad.c.o'],
                       check=True)
        self.describe_build('base', 'static library', 'build/libbase.a', 'base/meson.build')
        self.expect('mutable', 'base/bad.c:5', 'base/bad.c:8', 'base/bad.c:9')

    def test_mutable_is_skipped_with_a_sanitizer(self):
        self.describe_build('base', 'static library', 'build/libbase.a', 'base/meson.build',
                            sanitizer='address')
        self.assertIn('mutable: skipped', lint(self.root, 'mutable')[2])

    def test_scripts(self):
        self.write('scripts/good', '#!/bin/sh', 'echo ok')
        self.write('scripts/bad', '#!/bin/bash', 'if true; then', 'echo')
        self.write('scripts/bad.py', 'x = 1', 'def f(:')
        status, places, output = lint(self.root, 'scripts')
        self.assertEqual(status, 1)
        self.assertIn('scripts/bad.py:2', places, output)
        self.assertTrue(any(place.startswith('scripts/bad:') for place in places), output)
        self.assertFalse(any('good' in place for place in places), output)

    def test_man(self):
        self.write('build/docs/bad.1', '.Dd January 1, 2024', '.Dt BAD 1', '.Os', '.Sh NAME', '.Nm bad',
                   '.Nd a page', '.Nonsense here')
        status, places, output = lint(self.root, 'man')
        if 'is not installed' in output:
            self.skipTest(output)
        self.assertEqual((status, places), (1, {'build/docs/bad.1:7'}), output)

    def test_unknown_check(self):
        self.assertEqual(lint(self.root, 'nonsense')[0], 2)


if __name__ == '__main__':
    unittest.main()
