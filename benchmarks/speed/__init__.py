"""The subjects of `make bench`, one file each; every one runs in its own process and writes its results as JSON."""
