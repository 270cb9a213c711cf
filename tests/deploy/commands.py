"""Command lines of moescope, as deploy/ and its page write them, looked up in the real one."""

from typer.main import get_command

from moescope.cli import app


def problem_with(words: list[str]) -> str:
    """What is wrong with ``moescope <words>``: a command or an option that does not exist. Nothing: empty."""
    command = get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        found = command.commands.get(rest[0])
        if found is None:
            return f"no command {' '.join(words)}"
        command, rest = found, rest[1:]
    known = {name for parameter in command.params for name in parameter.opts} | {"--help", "--version"}
    unknown = [word for word in rest if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{command.name} has no {', '.join(unknown)}" if unknown else ""
