"""Engines: what captures packets from interfaces while they pass."""
