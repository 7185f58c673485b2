#!/usr/bin/env python3
"""embed.py TEXT SOURCE NAME - write the C file SOURCE that defines what NAME.h declares: NAME, the text of the file
TEXT and a NUL, and NAME_len, its length without that."""

import sys
from pathlib import Path


def main():
    text, source, name = sys.argv[1:]
    with open(source, 'w', encoding='ascii') as file:
        file.write(f'/* Generated from {Path(text).name}. */\n#include "{name}.h"\n\nconst char {name}[] = {{\n')
        data = Path(text).read_bytes()
        for i in range(0, len(data), 24):
            file.write(''.join(f'{byte if byte < 128 else byte - 256},' for byte in data[i:i + 24]) + '\n')
        file.write(f'0}};\nconst size_t {name}_len = sizeof {name} - 1;\n')


main()
