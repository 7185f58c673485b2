#!/usr/bin/env python3
"""embed.py TEXT SOURCE - write the C file SOURCE that holds the text of the file TEXT."""

import sys

HEAD = '''/* Generated from warm_python.py. */
#include "warm_source.h"

const char warm_source[] = {
'''
TAIL = '''0};
const size_t warm_source_len = sizeof warm_source - 1;
'''


def main():
    with open(sys.argv[1], 'rb') as file:
        text = file.read()
    with open(sys.argv[2], 'w', encoding='ascii') as file:
        file.write(HEAD)
        for i in range(0, len(text), 24):
            file.write(''.join(f'{byte},' for byte in text[i:i + 24]) + '\n')
        file.write(TAIL)


main()
