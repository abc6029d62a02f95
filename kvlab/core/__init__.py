"""Bookkeeping: requests, blocks, tables, schedules and traces, in the standard library alone."""
