"""The program `autofuse`; its commands are in `autofuse.commands`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; does not return."""
    try:
        # Imported here: Ctrl-C during the imports, about a second, must not print a traceback.
        from autofuse.commands.app import app

        app(prog_name="autofuse")
    except KeyboardInterrupt:
        print("autofuse: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
