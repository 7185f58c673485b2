#!/usr/bin/env python3
"""host_launches.py SOURCE OUTPUT - make C++ of CUDA: kernel<<<shape>>>(...) becomes a call.

All else that CUDA adds to the language stands in cuda_words.h.
"""

import re
import sys

LAUNCH = re.compile(r'\b(\w+)<<<(.*?)>>>\(', re.DOTALL)

source, output = sys.argv[1:]
with open(source, encoding='utf-8') as file:
    text = LAUNCH.sub(r'host_launch(\1, \2, ', file.read())
with open(output, 'w', encoding='utf-8') as file:
    file.write(f'#line 1 "{source}"\n{text}')
