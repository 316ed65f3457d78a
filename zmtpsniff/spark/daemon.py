"""What the Python workers of this machine are forked from: Spark's daemon, with pyspark as it is installed.

Spark puts archives of pyspark and py4j in front of what is installed. Python keeps nothing of what it compiles of an
archive: it takes a second until a daemon has compiled all that it imports, each time.

What tasks import is imported here, once for all workers, and is not looked at as garbage by any.
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
