"""Entry point and list of commands.  A command's module is imported only when it is needed."""

import importlib
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from corral import __version__, python_gc
from corral.cli import help_lists
from corral.cli.errors import Problem, cause_of, from_os_error
from corral.cli.options import before_commands

SECTIONS: Final[dict[str, dict[str, str]]] = {
    "corral itself": {
        "up": "corral.cli.manager.up",
        "stop": "corral.cli.manager.stop",
        "down": "corral.cli.manager.stop",
        "status": "corral.cli.manager.status",
        "dashboard": "corral.cli.manager.dashboard",
        "token": "corral.cli.manager.token",
        "join": "corral.cli.manager.join",
        "leave": "corral.cli.manager.leave",
        "kubeconfig": "corral.cli.manager.kubeconfig",
        "backup": "corral.cli.manager.backup",
        "restore": "corral.cli.manager.backup",
        "image": "corral.cli.manager.image",
        "upgrade": "corral.cli.manager.upgrade",
        "version": "corral.cli.manager.version",
    },
    "On a Kubernetes": {
        "install": "corral.cli.manager.install",
        "uninstall": "corral.cli.manager.install",
        "controllers": "corral.cli.manager.controllers",
        "node": "corral.cli.manager.node",
    },
    "Into a machine, in virtctl's grammar": {
        "console": "corral.cli.virtctl.console",
        "vnc": "corral.cli.virtctl.vnc",
        "ssh": "corral.cli.virtctl.ssh",
        "scp": "corral.cli.virtctl.ssh",
        "port-forward": "corral.cli.virtctl.port_forward",
        "expose": "corral.cli.virtctl.expose",
        "image-upload": "corral.cli.virtctl.image_upload",
    },
    "Machines in an instant": {
        "claim": "corral.cli.manager.claim",
        "release": "corral.cli.manager.claim",
        "checkpoint": "corral.cli.manager.checkpoint",
        "fork": "corral.cli.manager.checkpoint",
    },
    "Manifests by flags, in virtctl's grammar": {"create": "corral.cli.virtctl.create"},
    "Power, volumes and guest information, in virtctl's grammar": {
        "start": "corral.cli.virtctl.power",
        "restart": "corral.cli.virtctl.power",
        "pause": "corral.cli.virtctl.lifecycle",
        "unpause": "corral.cli.virtctl.lifecycle",
        "soft-reboot": "corral.cli.virtctl.lifecycle",
        "reset": "corral.cli.virtctl.lifecycle",
        "migrate": "corral.cli.virtctl.migration",
        "migrate-cancel": "corral.cli.virtctl.migration",
        "evacuate-cancel": "corral.cli.virtctl.evacuation",
        "addvolume": "corral.cli.virtctl.volumes",
        "removevolume": "corral.cli.virtctl.volumes",
        "guestosinfo": "corral.cli.virtctl.guest",
        "userlist": "corral.cli.virtctl.guest",
        "fslist": "corral.cli.virtctl.guest",
    },
}
"""Command → module, as help lists them; the function has the command's name, with _ for -."""

HIDDEN: Final = {"stand-ins": "corral.cli.manager.controllers"}
"""Commands in no list: for tests, in place of Kubernetes' own processes."""
COMMANDS: Final[dict[str, str]] = {
    name: module for section in (*SECTIONS.values(), HIDDEN) for name, module in section.items()
}
_KUBECTL: Final = frozenset(
    {"apply", "delete", "describe", "edit", "get", "logs", "patch", "scale", "top"}
)
"""Commands of kubectl that users may try here."""
_ALIASES: Final = {"softreboot": "soft-reboot"}


class _Commands(click.Group):
    """A group that imports the module of a command on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name])
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; suggest a similar one in the error if it does not exist."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib  # noqa: PLC0415  no other command needs it

            similar = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if similar:
                advice = f"Did you mean '{similar[0]}'?"
            elif args[0] in _KUBECTL:
                advice = f"kubectl {args[0]} does that."
            else:
                raise
            text = f"{error.message.rstrip('.')}. {advice}"
            raise click.UsageError(text, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in SECTIONS.items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            help_lists.write(
                formatter, heading, [(name, found) for name, found in commands if found]
            )


EPILOG = """\b
Example:
  corral image build-demo
  corral up --detach
  export KUBECONFIG=$(corral kubeconfig)
  kubectl create -f examples/testreplicaset.yaml
  kubectl get vmi
"""


@click.command(cls=_Commands, epilog=EPILOG, context_settings={"auto_envvar_prefix": "CORRAL"})
@click.version_option(__version__, prog_name="corral")
@before_commands
def corral() -> None:
    """KubeVirt's replica sets of virtual machines, on one machine.

    What kubectl does is done with kubectl; what virtctl does is done with corral, in virtctl's
    grammar.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command, print its errors to stderr, and return its exit code."""
    code = 0
    try:
        # Without standalone mode, click returns the code of an Exit that a command raised.
        code = corral.main(list(arguments), prog_name="corral", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except Problem as problem:
        code = _print(problem)
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except (OSError, ExceptionGroup) as error:
        # 128 + SIGPIPE, as a shell reports a program whose reader has ended.
        is_closed_pipe = isinstance(cause_of(error), BrokenPipeError)
        code = 141 if is_closed_pipe else _print(from_os_error(error))
    return code


def _print(problem: Problem) -> int:
    click.echo(f"error: {problem.message}", err=True)
    if problem.hint:
        click.echo(f"       {problem.hint}", err=True)
    return problem.exit_code


def main() -> NoReturn:
    python_gc.raise_threshold()  # before a command is imported
    sys.exit(run(sys.argv[1:]))
