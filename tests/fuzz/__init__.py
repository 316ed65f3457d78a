"""Fuzzing: targets that take any octets, a corpus of what they have learned from, and a program that runs them."""
