"""Captures of many machines, dissected on Spark into tables."""
