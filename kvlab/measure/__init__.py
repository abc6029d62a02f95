"""Measuring: what this machine does with kvlab and beside other engines."""
