"""The build back end of "pip install ./python": meson-python in the root of the repository, where the sources are."""

import os
import subprocess
import sys
from pathlib import Path

os.chdir(Path(__file__).resolve().parent.parent)

import mesonpy  # noqa: E402
from mesonpy import build_sdist, build_wheel, get_requires_for_build_sdist  # noqa: E402

__all__ = ['build_sdist', 'build_wheel', 'get_requires_for_build_sdist', 'get_requires_for_build_wheel']

# pip brings the first, and without the others a part is left out.
NOT_NEEDED = {'make', 'meson', 'ninja-build', 'zlib1g-dev', 'libssl-dev', 'libmicrohttpd-dev', 'libcurl4-openssl-dev',
              'libpmix-dev'}


def get_requires_for_build_wheel(config_settings=None):
    """The first that pip asks for. What the compiler will not find is said here, before its long output."""
    missing = subprocess.run(['scripts/setup', '--missing', 'build'], capture_output=True, text=True, check=True).stdout.split()
    if set(missing) - NOT_NEEDED:
        sys.exit('ddprun is compiled on this machine, which lacks: ' + ' '.join(missing) + '\nThese are the names of Debian '
                 'packages: run "make wheel", which installs them, or as an administrator\n    apt-get install -y '
                 '--no-install-recommends ' + ' '.join(missing))
    return mesonpy.get_requires_for_build_wheel(config_settings)
