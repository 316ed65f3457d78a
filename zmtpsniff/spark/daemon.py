"""Spark's daemon, from which the Python workers of this machine are forked, with pyspark as it is installed.

Spark puts archives of pyspark and py4j in front of the installed packages. Python does not keep the compiled modules of
an archive, so each daemon would take a second to compile its imports.

This module imports what tasks need, once for all workers. No worker's garbage collector looks at these objects.
"""

import gc
import sys

if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(("/pyspark.zip", "-src.zip"))]
    sys.path.append("")  # the current folder, which PYTHONSAFEPATH left out: functions of users may be in modules there
    import pandas  # type: ignore[import-untyped]  # noqa: F401  # which Arrow wants with its first array
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import zmtpsniff.spark.task  # noqa: F401

    gc.freeze()
    manager()
