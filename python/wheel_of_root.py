"""The build back end of "pip install ./python": meson-python in the root of the repository, where the sources are."""

import os
from pathlib import Path

os.chdir(Path(__file__).resolve().parent.parent)

from mesonpy import (build_sdist, build_wheel, get_requires_for_build_sdist,  # noqa: E402
                     get_requires_for_build_wheel)

__all__ = ['build_sdist', 'build_wheel', 'get_requires_for_build_sdist', 'get_requires_for_build_wheel']
