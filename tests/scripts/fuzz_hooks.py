"""Hooks for schemathesis: long polls become short ones.

A valid wait of up to 30 s would be waited for; it is cut down before the request is sent. What is not a valid wait stays
as it is, so that the server still has to refuse it.
"""

import re

import schemathesis

SHORT = 0.02
LONGEST = 30.0
UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(wait):
    """The wait in seconds, or None where it is not a duration."""
    if isinstance(wait, bool):
        return None
    if isinstance(wait, (int, float)):
        return float(wait)
    if isinstance(wait, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*(ms|s|m|h|d|)\s*", wait)
        try:
            return float(match[1]) * UNITS[match[2]] if match else None
        except ValueError:
            return None
    return None


def shorten(values):
    if isinstance(values, dict) and "wait" in values:
        wait = seconds(values["wait"])
        if wait is not None and SHORT < wait <= LONGEST:
            values["wait"] = SHORT


@schemathesis.hook
def before_call(context, case, kwargs):
    shorten(case.query)
    shorten(case.body)
