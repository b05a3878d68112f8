"""Runs the Python sample on standard input: `python run_sample.py <document> <line of its fence>`.

A sample may await at its top level, as in a notebook, and runs as the main module, so that what it defines can be found
there by name. An error shows the document and the line.
"""

import ast
import asyncio
import inspect
import os
import sys
import types


def compile_sample(text: str, document: str, line: int) -> types.CodeType:
    """The sample as code whose lines count as in the document."""
    code = compile("\n" * line + text, document, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, types.CodeType)
    return code


def run_sample(code: types.CodeType, namespace: dict[str, object]) -> None:
    sample = types.FunctionType(code, namespace)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(sample())
    else:
        sample()


if __name__ == "__main__":
    document, line = sys.argv[1:]
    # The folder of the samples, not the folder of this file, is where a sample imports from.
    sys.path[0] = os.getcwd()
    sys.argv[:] = [document]
    run_sample(compile_sample(sys.stdin.read(), document, int(line)), globals())
