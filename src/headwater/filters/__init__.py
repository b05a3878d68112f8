"""Filters: which documents somebody means, said once and understood everywhere.

    CEL text ──► parse ───────────┐                    ┌─► predicate   a Python function: live queries, conditions
                                  ├─► one expression ──┤
    {field, op, value} ──► parse_conditions            └─► to_sql      a WHERE clause: snapshots, queries

All forms mean the same. The rules are few, and there are no errors while a filter runs:

- A field that is missing reads as null; `has` tells the two apart.
- Numbers compare by their exact value, whether they are written with a fraction or not. Booleans are no numbers.
- `<`, `<=`, `>` and `>=` hold between two numbers or two texts (by code point), and never otherwise.
- `!=` and `!` are the plain opposite: a document without the field differs from any value but null.
- What compares with a claim (`auth.…`) that the caller does not have never holds, nor does its opposite.
"""

from headwater.filters.cel import parse
from headwater.filters.claims import bind, has_claims
from headwater.filters.conditions import parse_conditions
from headwater.filters.dialects import Column, Dialect
from headwater.filters.permits import may_read, may_write, readable, reads_nothing
from headwater.filters.python import Predicate, predicate
from headwater.filters.sql import is_exact, to_sql
from headwater.filters.tree import Expression, Weight, weight_of
from headwater.filters.whole import whole_filter

__all__ = [
    "Column",
    "Dialect",
    "Expression",
    "Predicate",
    "Weight",
    "bind",
    "has_claims",
    "is_exact",
    "may_read",
    "may_write",
    "parse",
    "parse_conditions",
    "predicate",
    "readable",
    "reads_nothing",
    "to_sql",
    "weight_of",
    "whole_filter",
]
