"""Tests of Spark, which are not run where its extra is not installed: each module says what is missing."""

from importlib.util import find_spec

for _package in ("pyspark", "pyarrow", "deltalake", "duckdb", "polars"):
    if find_spec(_package) is None:
        import pytest

        pytest.skip(f"{_package} is not installed: pip install 'zmtpsniff[spark]'", allow_module_level=True)
