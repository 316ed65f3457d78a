"""Findings: what is wrong in a system of programs, how that is known, and what to do about it.

`Diagnosis` hears all events of a capture and what connections show below their octets, in one pass and in bounded
memory. It hands them to its inquiries, a module for each family of findings, and asks them at the end. An inquiry says
nothing that a hole in the capture may explain.
"""

from zmtpsniff.analysis.findings.diagnosis import Diagnosis

__all__ = ["Diagnosis"]
