"""The command line: `headwater serve`, `push`, `pop`, `tail`, `queues`, `groups`, `seek`, `dlq`, `jobs`,
`pipeline`, `doctor`, `bench`; and `queuectl`, which is `headwater jobs`.

A command is a thin function: it reads its options, calls the library, and hands what comes back to `output.py`. Modules
import what is heavy inside the functions that need it: every start of the program pays for what stands at the top.
"""

import sys


def main() -> int:
    """Run the command in `sys.argv`; the exit code."""
    arguments = sys.argv[1:]
    if arguments in (["version"], ["--version"]):
        # Scripts and prompts ask this often, and it needs no parser.
        print(version_line())
        return 0
    from headwater.cli.program import run

    return run(arguments)


def queuectl() -> int:
    """Run `queuectl`: the commands of `headwater jobs`, without the two words."""
    from headwater.cli.program import run

    if sys.argv[1:] == ["--version"]:
        print(version_line())
        return 0
    return run(sys.argv[1:], "queuectl")


def version_line() -> str:
    """The version for people."""
    from headwater import __version__

    return f"headwater {__version__}"
