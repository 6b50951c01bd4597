"""Runs the command line as `python -m autofuse`."""

from autofuse.cli import main

if __name__ == "__main__":
    main()
