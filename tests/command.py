"""The command line run in this process, or in another with packages missing."""

from __future__ import annotations

import subprocess
import sys

from wsfast.cli import main


def run(capsys, *arguments):
    """Exit status, stdout and stderr."""
    try:
        status = main(arguments)
    except SystemExit as stop:  # argparse
        status = stop.code
    return status, *capsys.readouterr()


def refuses(capsys, message, *arguments):
    """Exit status 2, nothing on stdout, and the message; the last line says who speaks."""
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.splitlines()[-1].startswith("wsfast")


def in_process(*arguments, missing=(), **options):
    """Run the command in a process of its own, in which the packages `missing` are not there."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r}))\n"
        f"from wsfast.cli import main; sys.exit(main({arguments!r}))"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
