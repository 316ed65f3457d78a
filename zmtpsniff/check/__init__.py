"""Captured traffic as a test: policies, the check of events against their rules, and reports of the results."""
