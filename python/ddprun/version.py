"""The version of this package, which is that of the libraries it is made for. No imports: it costs nothing to read."""

VERSION = '0.2.0'
