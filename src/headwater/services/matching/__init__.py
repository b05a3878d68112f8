"""Matching: which of many filters a changed document concerns, without trying them all.

    expression ── access.py: what a document must have for it ──► filed under a value, a range, or as tried always
    document ── its values ──► candidates ── the filter itself ──► entered, changed, left

A filter is filed under the most telling of its conditions: a value that a field must have (an id above all), a value
that a list must hold, a range. What no index can foresee (`!=`, `contains` of a text, `has`) is tried for every change,
so that nothing passes it by. The filter itself decides last: an index may be wide and is never wrong.
"""

from headwater.services.matching.matcher import Filed, Hit, Hits, Matcher, Move

__all__ = ["Filed", "Hit", "Hits", "Matcher", "Move"]
