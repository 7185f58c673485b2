#!/usr/bin/env python3
"""embed.py NAME FILE - FILE as a C array of characters called NAME, with a NUL behind it."""

import sys
from pathlib import Path

name, path = sys.argv[1:]
text = Path(path).read_bytes()
print(f'/* Made from {Path(path).name}. */\nconst char {name}[] = {{')
for at in range(0, len(text), 16):
    print('    ' + ', '.join(str(byte) for byte in text[at:at + 16]) + ',')
print('    0};')
