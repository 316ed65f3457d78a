"""zstd: Python's own from 3.14 on, before that of backports.zstd, which has the same names."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
