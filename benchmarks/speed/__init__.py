"""The subjects of `make bench`, one file each; every one runs in a process of its own and writes its results as JSON."""
