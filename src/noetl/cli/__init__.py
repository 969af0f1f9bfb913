"""The command line: finds the verb and gives it the rest.

Starting must be cheap, so this module imports almost nothing, and each verb is a module of its own that is
imported only when it is called (measured by `benchmarks/startup.py`). Exit codes: 0 done, completed or
valid, 1 failed or invalid, 2 usage error or unreadable file, 3 cancelled, 130 interrupted, 141 the reader of
our output went away.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS: Final = {
    "run": "run a playbook",
    "exec": "run a registered playbook",
    "resume": "go on with an execution that was interrupted or paused",
    "retry": "run an execution again from a step, or only a loop's failed items",
    "list": "list executions",
    "status": "show how an execution stands, or follow it",
    "events": "show the log of an execution",
    "logs": "show what the tasks of an execution printed",
    "result": "print the result of an execution or a step",
    "cancel": "end an execution",
    "pause": "keep an execution from starting more",
    "signal": "send an execution a signal",
    "register": "put playbooks into the catalog",
    "catalog": "show registered playbooks and their versions",
    "credential": "keep the secrets that playbooks name",
    "context": "name servers, and choose the one commands go to",
    "up": "start a whole deployment on this machine",
    "down": "end it; the data stays",
    "server": "start, stop or show servers",
    "worker": "start, stop, show or count workers",
    "validate": "check playbooks and say what is wrong, with line and column",
    "explain": "say in plain words what a playbook will do",
    "graph": "draw a playbook as text, Mermaid, DOT or SVG",
    "new": "write a commented starter playbook",
    "migrate": "rewrite an older playbook in the canonical form",
    "db": "make, migrate and check the database of a store",
    "schema": "print the JSON Schema of the language, for editors",
}
"""Each verb is a module of this package, of its own name or by `MODULES`, with `run(arguments, settings)`."""

MODULES: Final = {"list": "listing", "exec": "executing"}
"""A module named like a builtin would hide it here."""

GROUPS: Final = (
    ("Write playbooks", ("new", "validate", "explain", "graph")),
    ("Run playbooks", ("run", "resume", "retry", "register", "exec", "catalog")),
    ("Look at executions", ("list", "status", "events", "logs", "result")),
    ("Steer executions", ("cancel", "pause", "signal")),
    ("Secrets and servers", ("credential", "context", "db")),
    ("Run a deployment", ("up", "down", "server", "worker")),
    ("Tools and older playbooks", ("schema", "migrate")),
)

EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Carries out one command line and gives its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape; output is never lost to an encoding.
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:  # a full disk under our output; what verbs read and write, they answer for
        _abandon_stdout()
        print(f"noetl: {error.strerror or error}", file=sys.stderr)
        return EXIT_USAGE
    return code


def _dispatch(arguments: list[str]) -> int:
    verb = arguments[0] if arguments else "--help"
    if verb in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0 if arguments else EXIT_USAGE
    if verb in ("-V", "--version"):
        # Only these two verbs need it.
        from noetl import __version__  # noqa: PLC0415

        print(f"noetl {__version__}")
        return 0
    if verb not in VERBS:
        return _unknown(verb)
    # The measured saving: `noetl --help` starts without argparse, msgspec, yaml or the language.
    from noetl.cli.environment import settings_from_environment  # noqa: PLC0415
    from noetl.errors import NoetlError  # noqa: PLC0415

    try:
        settings = settings_from_environment()
        code = _module_of(verb).run(arguments[1:], settings)
    except NoetlError as error:
        print(f"noetl {verb}: {error.message}", file=sys.stderr)
        return EXIT_USAGE
    except SystemExit as leaving:  # argparse leaves this way after it has printed a verb's help
        return leaving.code if isinstance(leaving.code, int) else EXIT_USAGE
    assert isinstance(code, int)
    return code


def _module_of(verb: str) -> Any:  # noqa: ANN401 - a module
    """Imports a verb. What is imported stays: looking for garbage in it, now or at exit, is waste."""
    # Only a verb needs them.
    import gc  # noqa: PLC0415
    from importlib import import_module  # noqa: PLC0415

    collecting = gc.isenabled()
    gc.disable()
    try:
        return import_module(f"noetl.cli.{MODULES.get(verb, verb)}")
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


def help_text() -> str:
    lines = [
        "usage: noetl VERB [options]",
        "",
        "NoETL runs playbooks: workflows in YAML whose every decision is an event in one log.",
    ]
    for title, verbs in GROUPS:
        lines += ["", f"{title}:", *(f"  {verb:<10} {VERBS[verb]}" for verb in verbs)]
    lines += [
        "",
        "Example:",
        "  noetl new my_report && noetl validate my_report.yaml && noetl run my_report.yaml",
        "",
        "`noetl VERB --help` lists a verb's options; `noetl --version` prints the version.",
    ]
    return "\n".join(lines) + "\n"


def _unknown(verb: str) -> int:
    # Only a mistyped verb needs it.
    from noetl.playbook.diagnostics import nearest  # noqa: PLC0415

    what = "option" if verb.startswith("-") else "verb"
    print(f"noetl: unknown {what} `{verb}`", file=sys.stderr)
    meant = nearest(verb, VERBS) if what == "verb" else nearest(verb, ("--help", "--version"))
    hint = f"did you mean `{meant}`?" if meant else f"one of {', '.join(VERBS)}"
    print(f"hint: {hint}", file=sys.stderr)
    return EXIT_USAGE


def _open_closed_streams() -> None:
    """Connects streams that were closed when we started to nothing.

    Their descriptors are taken again too: the next file that is opened, a database perhaps, would be the
    standard output of the processes we start.
    """
    # Only where a stream is closed.
    import os  # noqa: PLC0415

    for name, mode, flags in (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_WRONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)  # the lowest that is free: the closed one
            os.set_inheritable(descriptor, True)
            stream = open(descriptor, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - until the end
            setattr(sys, name, stream)


def _abandon_stdout() -> None:
    """Sends what is still buffered nowhere, so that the interpreter's last flush does not complain."""
    # Only after the reader went away.
    import os  # noqa: PLC0415

    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # a stream without a file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
