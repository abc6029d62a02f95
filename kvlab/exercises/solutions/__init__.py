"""Worked solutions, one module a section. Leave this folder out for a set without them."""
