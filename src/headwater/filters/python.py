"""Filters as Python functions.

Code is made for the shape of a filter: which leaves, how they are joined, of which kind the values are. Names of fields
and values never stand in it: they come in as arguments. Filters of one shape share their code, so that the millionth
costs a closure and not a compilation.

Documents are what JSON decodes to: None, bool, int, float, str, list and dict, and nothing derived from them.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from headwater.filters.tree import (
    And,
    Constant,
    Equal,
    Expression,
    Field,
    HasText,
    Holds,
    Leaf,
    Not,
    OneOf,
    Or,
    Order,
    Present,
    Scalar,
    StartsWith,
    Subject,
    field_of,
    known,
    known_list,
)

Predicate = Callable[[Mapping[str, object]], bool]
SHAPES_MAX = 4_096


def predicate(expression: Expression) -> Predicate:
    """A function that says of a document whether it is meant.

    >>> predicate(parse('size > 10'))({"size": 11})
    True
    """
    shape = _Shape()
    text = shape.of(expression)
    return _factory(text, len(shape.values))(*shape.values)


def holds_for(expression: Expression, document: Mapping[str, object]) -> bool:
    """Whether a document is meant, asked once."""
    return predicate(expression)(document)


def value_at(document: Mapping[str, object], path: tuple[str, ...]) -> object:
    """What is there; None when nothing is."""
    found: object = document
    for name in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


def present(document: Mapping[str, object], path: tuple[str, ...]) -> bool:
    """Whether there is anything, null too."""
    found = value_at(document, path[:-1])
    return isinstance(found, Mapping) and path[-1] in found


def _has_number(values: list[object], number: float) -> bool:
    # Looked for without a step of Python for each value first: a list may be long.
    return number in values and any(value == number and value.__class__ is not bool for value in values)


def _has_this(values: list[object], constant: object) -> bool:
    return id(constant) in map(id, values)


# All that the code may name beside its arguments.
_surroundings: dict[str, object] = {
    "__builtins__": {},
    "int": int,
    "float": float,
    "str": str,
    "list": list,
    "dict": dict,
    "has_number": _has_number,
    "has_this": _has_this,
}


@lru_cache(maxsize=SHAPES_MAX)
def _factory(text: str, count: int) -> Callable[..., Predicate]:
    names = ", ".join(f"c{number}" for number in range(count))
    code = f"def make({names}):\n def predicate(document):\n  return {text}\n return predicate\n"
    made: dict[str, Callable[..., Predicate]] = {}
    exec(compile(code, "<filter>", "exec"), _surroundings, made)
    return made["make"]


class _Shape:
    """Writes the code of one filter and gathers what comes in as arguments."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self._locals = 0

    def of(self, expression: Expression) -> str:
        """The code that a part becomes; always a boolean, in parentheses where it needs them."""
        if isinstance(expression, And):
            return "(" + " and ".join(map(self.of, expression.parts)) + ")"
        if isinstance(expression, Or):
            return "(" + " or ".join(map(self.of, expression.parts)) + ")"
        if isinstance(expression, Not):
            return f"(not {self.of(expression.part)})"
        if isinstance(expression, Constant):
            return "True" if expression.value else "False"
        return f"({self._leaf(expression)})"

    def _leaf(self, leaf: Leaf) -> str:
        match leaf:
            case Present():
                return self._present(field_of(leaf.subject))
            case Equal():
                return self._equal(leaf.subject, known(leaf.value))
            case OneOf():
                return self._one_of(leaf)
            case Order():
                name, value = self._local(), known(leaf.value)
                kind = _is_text(name) if isinstance(value, str) else _is_number(name)
                return f"{self._first(kind, name, leaf.subject)} and {name} {leaf.comparison} {self._argument(value)}"
            case Holds():
                name = self._local()
                is_list = self._first(f"{name}.__class__ is list", name, leaf.subject)
                return f"{is_list} and {self._search(name, known(leaf.value))}"
            case HasText():
                name = self._local()
                part = self._argument(known(leaf.value))
                return f"{self._first(_is_text(name), name, leaf.subject)} and {part} in {name}"
            case StartsWith():
                name = self._local()
                begin = self._argument(known(leaf.value))
                return f"{self._first(_is_text(name), name, leaf.subject)} and {name}.startswith({begin})"

    def _argument(self, value: object) -> str:
        self.values.append(value)
        return f"c{len(self.values) - 1}"

    def _local(self) -> str:
        self._locals += 1
        return f"v{self._locals}"

    def _value(self, subject: Subject) -> str:
        """The value at a path, None where there is none."""
        *parents, last = field_of(subject).path
        text = "document"
        tests = []
        for parent in parents:
            name = self._local()
            tests.append(f"({name} := {text}.get({self._argument(parent)})).__class__ is dict")
            text = name
        found = f"{text}.get({self._argument(last)})"
        return f"({found} if {' and '.join(tests)} else None)" if tests else found

    def _first(self, test: str, name: str, subject: Subject) -> str:
        """A test of a local, in whose first mention the local gets its value."""
        return "(" + test.replace(name, f"({name} := {self._value(subject)})", 1) + ")"

    def _present(self, field: Field) -> str:
        name = self._argument(field.path[-1])
        if len(field.path) == 1:
            return f"{name} in document"
        parent = self._local()
        return f"({parent} := {self._value(Field(field.path[:-1]))}).__class__ is dict and {name} in {parent}"

    def _equal(self, subject: Subject, value: Scalar) -> str:
        found = self._value(subject)
        if value is None or isinstance(value, bool):
            return f"{found} is {value}"
        if value in (0, 1):
            name = self._local()
            return f"({name} := {found}) == {self._argument(value)} and {name} is not {bool(value)}"
        return f"{found} == {self._argument(value)}"

    def _one_of(self, leaf: OneOf) -> str:
        """A value that is a list or an object cannot be looked up, so kinds are told apart first."""
        values = known_list(leaf.values)
        name = self._local()
        numbers = frozenset(one for one in values if isinstance(one, int | float) and not isinstance(one, bool))
        texts = frozenset(one for one in values if isinstance(one, str))
        tests = [f"{_is_text(name)} and {name} in {self._argument(texts)}"] if texts else []
        tests += [f"{_is_number(name)} and {name} in {self._argument(numbers)}"] if numbers else []
        tests += [f"{name} is {one}" for one in (None, True, False) if any(value is one for value in values)]
        return self._first(" or ".join(tests), name, leaf.subject) if tests else "False"

    def _search(self, name: str, value: Scalar) -> str:
        argument = self._argument(value)
        if isinstance(value, bool):
            return f"has_this({name}, {argument})"
        if isinstance(value, int | float) and value in (0, 1):
            return f"has_number({name}, {argument})"
        return f"{argument} in {name}"


def _is_text(name: str) -> str:
    return f"{name}.__class__ is str"


def _is_number(name: str) -> str:
    return f"({name}.__class__ is int or {name}.__class__ is float)"
