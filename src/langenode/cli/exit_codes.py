"""What the command's exit code tells a script; a signal that ended it is 128 plus its number."""

EXIT_BUG, EXIT_INPUT, EXIT_FIT, EXIT_SIGNAL = 1, 2, 3, 128
