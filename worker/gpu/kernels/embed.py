#!/usr/bin/env python3
"""embed.py FATBIN SOURCE TARGETS - write the C file SOURCE that holds the bytes of FATBIN."""

import struct
import sys

HEAD = '''/* Generated from reduce_copy.cu. */
#include "image.h"

const char ddpi_cuda_image_targets[] = "{targets}";
const size_t ddpi_cuda_image_len = {size};
const uint64_t ddpi_cuda_image[] = {{
'''


def main():
    fatbin, source, targets = sys.argv[1:]
    with open(fatbin, 'rb') as file:
        image = file.read()
    words = struct.unpack(f'={(len(image) + 7) // 8}Q', image + bytes(-len(image) % 8))
    with open(source, 'w', encoding='ascii') as file:
        file.write(HEAD.format(targets=targets, size=len(image)))
        for i in range(0, len(words), 4):
            file.write(''.join(f'{word:#x},' for word in words[i:i + 4]) + '\n')
        file.write('};\n')


main()
