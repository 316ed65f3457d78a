"""Spark set up for few rows: most of the time of a test goes into what pays only where there are many."""

from pathlib import Path

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # without its second compiler
SQL = {
    "spark.sql.shuffle.partitions": "2",
    # Plans compiled, and changed while they run.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
SETTINGS = {
    **SQL,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
}


def write_settings(folder: Path, **more: str) -> dict[str, str]:
    """Write them, and more with ``_`` for ``.``, into a folder; returns the environment of programs that use them."""
    settings = SETTINGS | {name.replace("_", "."): value for name, value in more.items()}
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return {"SPARK_CONF_DIR": str(folder)}
