"""Captured traffic as a test: policies, their rules held against events, and reports of how they fared."""
