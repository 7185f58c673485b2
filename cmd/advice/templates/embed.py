#!/usr/bin/env python3
"""embed.py SOURCE TEXT... - write the C file SOURCE that holds the texts of the files, each under its name."""

import sys
from pathlib import Path

HEAD = '''/* Generated from the files in templates/. */
#include "template_text.h"

const struct template_text template_texts[] = {
'''


def literal(line):
    quoted = line.replace('\\', '\\\\').replace('"', '\\"')
    return f'     "{quoted}\\n"'


def main():
    rows = []
    for path in map(Path, sys.argv[2:]):
        lines = path.read_text(encoding='ascii').splitlines()
        rows.append(f'    {{"{path.stem}",\n' + '\n'.join(map(literal, lines)) + '},\n')
    Path(sys.argv[1]).write_text(HEAD + ''.join(rows) + '    {NULL, NULL},\n};\n', encoding='ascii')


main()
