"""What goes wrong with PostgreSQL, in words a user can act on, and the address without its password.

Everything the driver raises becomes a StoreError here. Nothing here knows what is stored.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from noetl.store.protocol import StoreError

_ADVICE: Final = {
    "3F000": "the schema `noetl` is not there. Run `noetl db init` with this store",
    "42P01": "a table of NoETL is not there. Run `noetl db init` with this store",
    "42883": "a function of NoETL is not there. Run `noetl db migrate` with this store",
    "42501": "the user may not do this. Grant it the use of the schema `noetl`, or connect as another user",
    "25006": "it is read-only: a standby, or set so. Connect to the primary",
    "53100": "its disk is full. Free some space; what was committed before is safe",
    "53200": "it is out of memory. Give it more, or less to do",
    "53300": "it has no connection left. Raise `max_connections`, or run fewer servers",
    "57014": "it cancelled the statement, perhaps because of `statement_timeout`. Raise that for this user",
    "22P05": "a name cannot be stored: it holds half a character",
    "22P02": "a name cannot be stored: it holds half a character",
    "22021": "a name cannot be stored: it holds half a character",
}
"""By SQLSTATE; where the driver knows none, for want of a connection, the texts below are looked for."""

_REFUSALS: Final = (
    ("password authentication failed", "the user or the password is wrong. Correct them in the address"),
    ("no password supplied", "it wants a password. Put it into the address, or into the file ~/.pgpass"),
    ("no pg_hba.conf entry", "it does not let this user in from here. Allow it in its pg_hba.conf"),
    ("role ", "there is no such user. Create it, or name another in the address"),
    ("database ", "there is no such database. Create it (`createdb NAME`), or name another in the address"),
    ("starting up", "it is starting. Try again in a moment"),
    ("shutting down", "it is shutting down. Start it again"),
    ("too many clients", "it has no connection left. Raise `max_connections`, or run fewer servers"),
    ("SSL", "the encryption of the connection failed. Check `sslmode` and the certificates"),
    ("could not translate host name", "its host is unknown. Correct the address"),
    ("failed to resolve host", "its host is unknown. Correct the address"),
)
_UNREACHABLE: Final = "it does not answer. Start it, or correct the address"
_LOST: Final = (
    "the connection was lost. What was asked for may have been done or not: asking again is safe, a "
    "repetition is recognised"
)


def address_parts(url: str) -> dict[str, Any]:
    """What an address says; StoreError, in which nothing of it stands, where it cannot be read.

    The driver's words quote what they stumbled over, which is the password as often as not. An address
    whose password is not encoded may also be read, as one of another host: then parts of the password
    would stand where a host, a port or a database is named.
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise _unreadable() from None
    host, port, name = (str(parts.get(each) or "") for each in ("host", "port", "dbname"))
    is_port = port.replace(",", "0").isdecimal() or not port
    if not is_port or "@" in host[1:] or ("@" in name and "user" not in parts):
        raise _unreadable()
    return parts


def _unreadable() -> StoreError:
    return StoreError(
        "The address of the store cannot be read. Write `postgresql://user:password@host:5432/database`, and "
        "`@`, `/`, `%` and spaces in a password as %40, %2F, %25 and %20."
    )


def shown_address(url: str) -> str:
    """Where the database is, without user and password."""
    try:
        parts = address_parts(url)
    except StoreError:
        return "PostgreSQL"
    host, port = parts.get("host") or parts.get("hostaddr") or "localhost", parts.get("port") or 5432
    name = parts.get("dbname") or parts.get("user") or ""
    return f"PostgreSQL database {name} at {host}:{port}"


def refusal(error: psycopg.Error, url: str) -> StoreError:
    """For an attempt to connect that failed."""
    if isinstance(error, psycopg.ProgrammingError):
        return _unreadable()
    said = " ".join(str(error).split())
    for text, advice in _REFUSALS:
        if text in said and ("does not exist" in said or text.strip() not in ("role", "database")):
            return StoreError(f"{shown_address(url)}: {advice} ({said}).")
    return StoreError(f"{shown_address(url)}: {_UNREACHABLE} ({said}).")


def store_error(error: psycopg.Error, url: str) -> StoreError:
    """For a statement that failed."""
    said = " ".join(str(error).split())
    if error.sqlstate in _ADVICE:
        return StoreError(f"{shown_address(url)}: {_ADVICE[error.sqlstate]} ({said}).")
    if is_lost(error):
        return StoreError(f"{shown_address(url)}: {_LOST} ({said}).")
    return StoreError(
        f"{shown_address(url)}: it refused a statement. This may be a mistake in NoETL: please report it "
        f"({said})."
    )


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection went, and nobody knows what became of the statement."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith("08") or state in ("57P01", "57P02", "57P03", "57P05", "25P03")


def is_to_be_repeated(error: psycopg.Error) -> bool:
    """Whether nothing was written, because somebody else was in the way for a moment."""
    return error.sqlstate in ("40001", "40P01", "55P03")
