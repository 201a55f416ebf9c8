"""`python -m langenode` is the command."""

from langenode.cli import command

command()
