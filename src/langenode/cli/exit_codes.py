"""What the command's exit code tells a script."""

EXIT_BUG, EXIT_INPUT, EXIT_FIT, EXIT_INTERRUPTED = 1, 2, 3, 130
