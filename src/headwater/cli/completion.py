"""`completion`: the script that lets a shell complete commands and options."""

import os
from typing import Annotated, Any

import typer

SHELLS = ("bash", "zsh", "fish")


def completion(
    ctx: typer.Context,
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.", metavar="SHELL", show_default=False)],
) -> None:
    """Print the script that lets your shell complete commands and options.

    Examples:
      queuectl completion bash >> ~/.bash_completion
      queuectl completion fish > ~/.config/fish/completions/queuectl.fish
    """
    from typer._completion_shared import get_completion_script

    from headwater.cli.exits import Misuse

    if shell not in SHELLS:
        raise Misuse(f"completion is there for {', '.join(SHELLS)}; got {shell!r:.40}")
    program = ctx.find_root().info_name or "headwater"
    print(get_completion_script(prog_name=program, complete_var=variable_of(program), shell=shell))


def variable_of(program: str) -> str:
    """The variable by which a shell asks a program what may come next."""
    return f"_{program.upper()}_COMPLETE"


def complete(program: str, command: Any) -> int | None:
    """Answer a shell that asks what may come next; None when nobody does."""
    instruction = os.environ.get(variable_of(program))
    if not instruction:
        return None
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete

    completion_init()
    return shell_complete(command, {}, program, variable_of(program), instruction)
