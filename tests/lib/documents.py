"""documents.py - the blocks of README.md and docs/*.md that a reader compiles or types.

A test asks for the block that it runs by its document and its first words: block('README.md', 'make demo'). A block that
no test runs has a line in the table of exceptions, with the reason. scripts/lint compares documents, tests and table.
"""

import ast
import re
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXCEPTIONS = Path('tests/integration/documents.txt')
DATA = ('text', 'json', 'yaml', 'promql')  # languages of what programs print and read

Block = namedtuple('Block', 'document line language text')
Claim = namedtuple('Claim', 'path line document beginning')  # a test runs such a block, or the table excepts it

BLOCK = re.compile(r'^```(?P<language>\w*)\n(?P<fenced>.*?)^```$|(?<=\n\n)(?P<indented>(?:    [^\n]*\n|\n(?=    ))+)',
                   re.MULTILINE | re.DOTALL)


def documents(root):
    return [path.relative_to(root) for path in (root / 'README.md', *sorted(root.glob('docs/*.md'))) if path.exists()]


def blocks(root, document):
    """All blocks of @document but those of data."""
    text = (root / document).read_text(encoding='utf-8')
    for match in BLOCK.finditer(text):
        part = 'indented' if match['indented'] else 'fenced'
        code = re.sub('^    ', '', match[part], flags=re.MULTILINE) if match['indented'] else match[part]
        if match['language'] not in DATA:
            yield Block(str(document), text.count('\n', 0, match.start(part)) + 1, match['language'], code)


def block(document, beginning):
    """The text of the only block of @document that begins with @beginning."""
    found, = (one.text for one in blocks(ROOT, document) if one.text.startswith(beginning))
    return found


def claims_of_tests(root):
    """The calls of block() in tests, whose arguments are constants."""
    for path in sorted(root.glob('tests/*/test_*.py')):
        text = path.read_text(encoding='utf-8')
        if 'import block' not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'block':
                yield Claim(path.relative_to(root), node.lineno, *map(ast.literal_eval, node.args))


def claims_of_table(root):
    """Lines of DOCUMENT | BEGINNING | REASON."""
    lines = (root / EXCEPTIONS).read_text(encoding='utf-8').splitlines() if (root / EXCEPTIONS).exists() else []
    for number, line in enumerate(lines, 1):
        if line and not line.startswith('#'):
            document, beginning, _ = line.split(' | ', 2)
            yield Claim(EXCEPTIONS, number, document, beginning)


def faults(root):
    """(path, line, sentence) of each block that is neither run nor excepted, both, or excepted twice, and of claims
    without a block."""
    run, excepted = list(claims_of_tests(root)), list(claims_of_table(root))
    idle = run + excepted
    for one in (found for document in documents(root) for found in blocks(root, document)):
        claims = [[claim for claim in kind if claim.document == one.document and one.text.startswith(claim.beginning)]
                  for kind in (run, excepted)]
        idle = [claim for claim in idle if claim not in claims[0] + claims[1]]
        if not any(claims):
            yield one.document, one.line, f'no test runs this block, and {EXCEPTIONS} has no reason why not'
        elif len(claims[1]) > 1:
            yield EXCEPTIONS, claims[1][1].line, f'line {claims[1][0].line} excepts this block, too'
        elif all(claims):
            yield EXCEPTIONS, claims[1][0].line, f'{claims[0][0].path} runs this block'
    for claim in idle:
        yield claim.path, claim.line, f'{claim.document} has no block that begins with {claim.beginning!r}'
