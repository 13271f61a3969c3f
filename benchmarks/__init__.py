"""Timings against the plain implementation, side by side in one run; never part of the tests."""
