"""The subjects of `make bench`, one file each; every one runs as a process of its own and writes its findings as JSON."""
