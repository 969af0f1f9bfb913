"""The playbooks that carry canaries through every kind of tool, on every way that a task can end.

Each task has a secret of its own, so that what is found says which way it took. Tasks that fail go on to the
next, and the last one fails the execution with a secret in its message.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.security.canaries import Canaries

GO_ON = {"policy": {"rules": [{"else": {"then": {"do": "continue"}}}]}}
AGAIN = {
    "policy": {
        "rules": [
            {
                "when": "{{ outcome.status == 'error' and _attempt < 3 }}",
                "then": {"do": "retry", "attempts": 3, "delay": "10ms"},
            },
            {"else": {"then": {"do": "continue"}}},
        ]
    }
}
MADE_OF_IT = """\
import base64, json, re, urllib.parse
encoded = base64.b64encode(k.encode()).decode()
lines = base64.encodebytes(b"a key for " + k.encode() * 3).decode()
url = urllib.parse.quote(k, safe="@:+=&$()")
small = re.sub("%..", lambda found: found[0].lower(), url)
print(lines, small, sep="\\n")
result = {k: 1, "it": k, "base64": encoded, "url": urllib.parse.quote(k), "json": json.dumps(k),
          "basic": base64.b64encode(b"user:" + k.encode()).decode(),
          "lines": [lines, lines.replace("\\n", "\\r\\n"), json.dumps(lines)],
          "address": [url, small, url.replace("%20", "+")], "slashes": json.dumps(k).replace("/", "\\/")}
"""
NUMBER = """\
print(k, -k)
result = {"it": k, "list": [k], "text": f"is {k}", str(k): 1, "whole": float(k), "json": '{"a":%d}' % k}
if fails: raise ValueError(k)
"""
IN_PIECES = """\
import os, time
half = len(k.encode()) // 2
for piece in (b"it is ", k.encode()[:half], k.encode()[half:], b" in pieces\\n"):
    os.write(1, piece)
    time.sleep(0.03)
"""
HALVES = """\
half=$(printf %s "$k" | cut -c 1-20)
printf "%08190d%s" 1 "$half" >&2
sleep 0.1
printf "%s\\n" "${k#"$half"}" >&2
"""
"""A line that is longer than what is waited for, with a border inside the secret."""
FAILED_TASKS = {
    "http_path": "http.connect", "http_retried": "http.status", "http_late": "timeout",
    "http_broken": "http.protocol", "py_raises": "python.exception", "py_causes": "python.exception",
    "py_retried": "python.exception", "py_late": "timeout", "py_dies": "process.died",
    "py_unparsed": "python.syntax", "sh_fails": "shell.exit", "sh_text": "timeout",
    "sh_killed": "shell.killed", "script_fails": "shell.exit", "sqlite_table": "sql.constraint",
    "sqlite_long": "sql.constraint", "sqlite_wrong": "sql.statement", "sqlite_broken": "template.value",
    "duckdb_table": "sql.constraint", "duckdb_long": "sql.constraint", "duckdb_no_row": "sql.statement",
    "duckdb_wrong": "sql.statement", "duckdb_broken": "template.value", "postgres_table": "sql.constraint",
    "postgres_long": "sql.constraint", "postgres_no_row": "sql.statement", "postgres_wrong": "sql.statement",
    "postgres_broken": "template.value", "pg_login": "sql.connection", "pg_dsn": "sql.connection",
    "no_name": "template.undefined", "no_number": "template.value", "no_field": "template.undefined",
    "no_method": "config.invalid", "no_address": "config.invalid", "no_headers": "config.invalid",
    "no_folder": "shell.start", "no_script": "script.start", "no_interpreter": "script.start",
    "no_file": "config.invalid", "no_duck": "sql.statement", "no_limit": "spec.invalid",
    "no_timeout": "spec.invalid",
    "no_store": "result.store", "no_playbook": "playbook.unknown", "asked": "timeout",
    "number_pin": "python.exception",
}  # fmt: skip
"""The tasks that are made to fail, and how; the others succeed."""
Playbook = dict[str, Any]


class Campaign:
    """Where secrets come from by kind, and the tasks they go through."""

    def __init__(self, canaries: Canaries, outside_url: str, dsn: str, file: Path) -> None:
        """`file`: where a secret is kept that playbooks read from a file."""
        file.write_text(canaries["from_file"] + "\n", encoding="utf-8")
        self._file = file
        self.canaries = canaries
        self._outside = outside_url
        self._dsn = dsn
        self.environment: dict[str, str] = {}
        self._keychain: list[dict[str, Any]] = []

    # --- secrets ----------------------------------------------------------------------------------------

    def env(self, name: str, value: str | None = None) -> str:
        """The expression of a secret from the environment."""
        if name not in self.environment:
            self.environment[name] = self.canaries[name] if value is None else value
            self._keychain.append({"name": name, "kind": "env"})
        return f"{{{{ keychain.{name} }}}}"

    def entry(self, name: str, kind: str, **fields: Any) -> str:
        self._keychain.append({"name": name, "kind": kind, **fields})
        return f"{{{{ keychain.{name} }}}}"

    # --- tasks ------------------------------------------------------------------------------------------

    def tasks(self) -> dict[str, dict[str, Any]]:
        return {
            **self._http(),
            **self._python(),
            **self._programs(),
            **self._databases(),
            **self._keychains(),
            **self._numbers(),
            **self._others(),
        }

    def _http(self) -> dict[str, dict[str, Any]]:
        def to(path: str, name: str, **fields: Any) -> dict[str, Any]:
            headers = {"X-Secret": self.env(name)}
            return {"kind": "http", "url": f"{self._outside}/{path}", "headers": headers, **fields}

        basic = {"username": "user", "password": self.env("http_basic")}
        user = self.env("http_user", self._plain("http_user"))
        address = self._outside.replace("://", f"://user:{user}@")
        return {
            "http_header": to("echo", "http_header"),
            "http_query": {
                "kind": "http",
                "url": f"{self._outside}/echo",
                "params": {"k": self.env("http_q", self.canaries.signs("http_q"))},
            },
            "http_body": to("echo", "http_body", method="POST", json={"k": self.env("http_json")}),
            "http_basic": {"kind": "http", "url": f"{self._outside}/echo", "auth": basic},
            "http_user": {"kind": "http", "url": f"{address}/echo"},
            "http_path": {
                "kind": "http",
                "url": "http://127.0.0.1:1/" + self.env("http_path", self.canaries.signs("http_path")),
            },
            "http_retried": to("fail", "http_retried", spec=AGAIN),
            "http_late": to("slow", "http_late", timeout=0.3),
            "http_large": to("large", "http_large"),
            "http_broken": to("broken", "http_broken"),
        }

    def _plain(self, name: str) -> str:
        """A secret that may stand in an address as it is."""
        return self.canaries.long(name, 36)

    def _python(self) -> dict[str, dict[str, Any]]:
        def code(name: str, text: str, **fields: Any) -> dict[str, Any]:
            return {"kind": "python", "args": {"k": self.env(name)}, "code": text, **fields}

        few = {"resources": {"output_bytes": 1000}, **GO_ON}
        text = self.env("py_text", self._plain("py_text"))
        return {
            "py_made": code("py_made", MADE_OF_IT),
            "py_pieces": code("py_pieces", IN_PIECES),
            "py_cut": code("py_cut", "print('x' * (1000 - len(k) // 2 - 3) + k)", spec=few),
            "py_tail": code("py_tail", "print(k + 'y' * (8192 - len(k) // 2))"),
            "py_raises": code("py_raises", "raise ValueError('a' * (1000 - 12 - len(k) // 2) + k)"),
            "py_causes": code(
                "py_causes",
                "try:\n  raise KeyError('b' * (1000 - 11 - len(k) // 2) + k)\n"
                "except KeyError as e:\n  raise RuntimeError(k) from e",
            ),
            "py_retried": code("py_retried", "print(k)\nraise OSError(k)", spec=AGAIN),
            "py_late": code("py_late", "print(k, flush=True)\nwhile True: pass", timeout=0.4),
            "py_large": code("py_large", "result = ['p' * (65530 - len(k)) + k] * 4 + [k]"),
            "py_dies": code("py_dies", "import os, sys\nprint(k, file=sys.stderr, flush=True)\nos._exit(3)"),
            "py_unparsed": {"kind": "python", "code": f"result = '{text}' +"},
            "py_lines": {
                "kind": "python",
                "args": {"k": self.env("py_lines", self.canaries.lines("py_lines"))},
                "code": "print(k)\nresult = k.splitlines()",
            },
        }

    def _programs(self) -> dict[str, dict[str, Any]]:
        def shell(name: str, commands: str, **fields: Any) -> dict[str, Any]:
            return {"kind": "shell", "cmds": commands, "auth": {"token": self.env(name)}, **fields}

        token = 'k=$(sed \'s/^{"token":"//; s/"}$//\' "$NOETL_AUTH")\n'
        text = self.env("sh_text", self._plain("sh_text"))
        return {
            "sh_auth": shell("sh_auth", 'cat "$NOETL_AUTH"'),
            "sh_fails": shell("sh_fails", token + 'printf "%s%01980d" "$k" 7 >&2; exit 3'),
            "sh_long": shell("sh_long", token + HALVES + 'printf "%08190d%s%08190d" 2 "$k" 3 >&2'),
            "sh_text": {"kind": "shell", "cmds": f"echo {text}; sleep 60", "timeout": 0.4},
            "sh_killed": shell("sh_killed", token + 'echo "$k" >&2; kill -9 $$'),
            "sh_stdin": {"kind": "shell", "cmds": "cat", "stdin": self.env("sh_stdin")},
            "script_written": {
                "kind": "shell",
                "cmds": "echo 'cat; cat >&2 \"$NOETL_AUTH\"; exit 4' > own.sh",
            },
            "script_fails": {
                "kind": "script",
                "source": "own.sh",
                "args": {"k": self.env("script")},
                "auth": {"token": self.env("script_auth")},
            },
        }

    def _databases(self) -> dict[str, dict[str, Any]]:
        tasks: dict[str, dict[str, Any]] = {}
        for kind in ("sqlite", "duckdb", "postgres"):
            at = {"dsn": self._dsn} if kind == "postgres" else {"database": f"own.{kind}"}
            taken, shown = self.env(f"{kind}_taken"), self.env(f"{kind}_shown")
            long = self.env(f"{kind}_long", self.canaries.long(f"{kind}_long"))
            made = f"CREATE TABLE IF NOT EXISTS kept_{kind} (k TEXT UNIQUE, n INTEGER NOT NULL)"
            tasks |= {
                f"{kind}_made": {"kind": kind, **at, "query": made},
                f"{kind}_row": {"kind": kind, **at, "query": f"SELECT {taken} AS k, 'a' || {taken} AS l"},
                f"{kind}_bound": {
                    "kind": kind,
                    **at,
                    "query": f"SELECT {'$' if kind == 'duckdb' else ':'}k AS k",
                    "params": {"k": taken},
                },
                f"{kind}_table": {
                    "kind": kind,
                    **at,
                    "table": f"kept_{kind}",
                    "args": {"k": shown, "n": None},
                },
                f"{kind}_long": {"kind": kind, **at, "table": f"kept_{kind}", "args": {"k": long, "n": None}},
                f"{kind}_no_row": {"kind": kind, **at, "query": f"SELECT CAST({long} AS INTEGER)"},
                f"{kind}_wrong": {
                    "kind": kind,
                    **at,
                    "query": f"SELECT {shown} FROM nowhere WHERE x = {long}",
                },
                f"{kind}_broken": {"kind": kind, **at, "query": f"SELECT {long} {shown} FORM"},
            }
        login = {"host": "127.0.0.1", "port": 1, "user": "nobody", "password": self.env("pg_password")}
        tasks["pg_login"] = {"kind": "postgres", "auth": login, "query": "SELECT 1"}
        dsn = f"postgresql://nobody:{self.env('pg_dsn', self._plain('pg_dsn'))}@127.0.0.1:1/none"
        tasks["pg_dsn"] = {"kind": "postgres", "dsn": dsn, "query": "SELECT 1"}
        return tasks

    def _keychains(self) -> dict[str, dict[str, Any]]:
        """Secrets of every kind of entry; the stored ones are set by `credentials`."""
        client = self.env("oauth_client")
        entries = {
            "from_file": self.entry("from_file", "file", path=str(self._file)),
            "a_bearer": self.entry("a_bearer", "bearer", token=f"Bearer {self.env('bearer_part')}"),
            "a_key": self.entry("a_key", "api_key", credential="stored_key"),
            "a_token": self.entry(
                "a_token",
                "oauth2",
                token_url=f"{self._outside}/token",
                client_id="client",
                client_secret=client,
            ),
        }
        self.entry("stored", "credential")
        self.entry("stored_pg", "postgres_credential")
        entries["stored"] = "{{ keychain.stored.password }}"
        found = {
            f"kept_{name}": {"kind": "python", "args": {"k": expression}, "code": MADE_OF_IT}
            for name, expression in entries.items()
        }
        vault = {
            "kind": "secrets",
            "provider": "vault",
            "address": self._outside,
            "secret": "x",
            "auth": {"token": self.env("vault_login")},
        }
        return found | {
            "kept_sql": {"kind": "postgres", "auth": "stored_pg", "query": "SELECT 1"},
            "kept_auth": {"kind": "http", "url": f"{self._outside}/echo", "auth": "stored"},
            "kept_own": {"kind": "secrets", "provider": "keychain", "secret": "stored"},
            "kept_vault": vault,
        }

    def _numbers(self) -> dict[str, dict[str, Any]]:
        self.entry("numbers", "credential")
        key, pin = "{{ keychain.numbers.api_key }}", "{{ keychain.numbers.pin }}"
        return {
            "number_key": {"kind": "python", "args": {"k": key, "fails": False}, "code": NUMBER},
            "number_pin": {"kind": "python", "args": {"k": pin, "fails": True}, "code": NUMBER},
            "number_sent": {"kind": "http", "url": f"{self._outside}/echo", "headers": {"X-Secret": key}},
        }

    def _others(self) -> dict[str, dict[str, Any]]:
        wrong = self.env("wrong", self.canaries.long("wrong"))
        return {
            "nothing": {"kind": "noop", "args": {"k": self.env("nothing")}},
            "no_name": {"kind": "noop", "args": {"k": "{{ {'a': 1}[keychain.wrong] }}"}},
            "no_number": {"kind": "noop", "args": {"k": "{{ keychain.wrong + 1 }}"}},
            "no_field": {"kind": "noop", "args": {"k": "{{ keychain.wrong.field.other }}"}},
            "no_method": {"kind": "http", "method": wrong, "url": self._outside},
            "no_address": {"kind": "http", "url": f"ftp://{wrong}"},
            "no_headers": {"kind": "http", "url": self._outside, "headers": {"A": f"{wrong}\r\nB: 1"}},
            "no_folder": {"kind": "shell", "cmds": "true", "cwd": wrong},
            "no_script": {"kind": "script", "source": wrong},
            "no_interpreter": {
                "kind": "script",
                "source": "own.sh",
                "interpreter": "no-such-program",
                "args": {"k": wrong},
            },
            "no_file": {"kind": "sqlite", "database": f"../{wrong}", "query": "SELECT 1"},
            "no_duck": {"kind": "duckdb", "query": f"SELECT * FROM read_csv({wrong})"},
            "no_limit": {"kind": "python", "code": "1", "spec": {"resources": {"memory": wrong}, **GO_ON}},
            "no_timeout": {"kind": "noop", "spec": {"timeout": wrong, **GO_ON}},
            "no_store": {
                "kind": "python",
                "code": "result = 'a' * 99999",
                "spec": {"result": {"store": wrong}, **GO_ON},
            },
            "no_playbook": {"kind": "playbook", "path": wrong},
            "asked": {"kind": "wait", "approval": f"may {self.env('asked')} pass?", "timeout": 0.3},
            "child": {"kind": "playbook", "path": "canary/child", "args": {"k": self.env("child")}},
            "named": {"kind": "workbook", "name": "shared", "args": {"k": self.env("named")}},
        }

    # --- playbooks --------------------------------------------------------------------------------------

    def playbook(self, name: str = "all") -> Playbook:
        steps: list[dict[str, Any]] = []
        tasks = self.tasks()
        for label, task in tasks.items():
            task.setdefault("spec", GO_ON)
            step: dict[str, Any] = {"step": f"s_{label}", "tool": [{label: task}]}
            steps.append(step)
        steps[0]["step"] = "start"
        steps += self._last_steps()
        for step, following in pairwise(steps):
            arcs = {"step": following["step"], "args": {"k": self.env("arc")}}
            step["next"] = {"arcs": [arcs]}
        shared = {"name": "shared", "tool": {"kind": "python", "code": "print(k)\nresult = k"}}
        return self._document(name, steps, workbook=[shared])

    def _last_steps(self) -> list[dict[str, Any]]:
        patch = {"do": "continue", "set_ctx": {"k": self.env("ctx")}, "set_iter": {"k": self.env("iter")}}
        looped = {
            "kind": "python",
            "args": {"k": "{{ k }}", "l": self.env("each")},
            "code": "result = [k, l]",
        }
        fails = {"kind": "python", "args": {"k": self.env("refused")}, "code": "raise PermissionError(k)"}
        return [
            {
                "step": "patched",
                "tool": {"kind": "noop", "spec": {"policy": {"rules": [{"else": {"then": patch}}]}}},
            },
            {
                "step": "looped",
                "loop": {"in": "{{ [keychain.each, 'b'] }}", "iterator": "k"},
                "tool": looped,
            },
            {"step": "refused", "tool": fails},
        ]

    def interrupted(self) -> Playbook:
        """Has made something of a secret, and then holds it in its hands without an end."""
        made = {"kind": "python", "args": {"k": self.env("before_end")}, "code": MADE_OF_IT}
        large = {
            "kind": "python",
            "args": {"k": self.env("before_end")},
            "code": "result = [k + 'x' * 70000]",
        }
        held = {
            "kind": "python",
            "args": {"k": self.env("at_end")},
            "code": "import time\nprint(k, flush=True)\nwhile True: time.sleep(1)",
        }
        steps: list[dict[str, Any]] = [
            {
                "step": "start",
                "tool": [{"made": made}, {"large": large}],
                "next": {"arcs": [{"step": "held"}]},
            },
            {"step": "held", "tool": [{"held": held}]},
        ]
        return self._document("interrupted", steps)

    def _document(self, name: str, steps: list[dict[str, Any]], **sections: Any) -> Playbook:
        head = {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": name, "path": f"canary/{name}"},
        }
        return head | {"keychain": self._keychain} | sections | {"workflow": steps}

    def child(self) -> Playbook:
        code = "print(k)\nresult = {'k': k}"
        steps = [
            {"step": "start", "tool": {"kind": "python", "args": {"k": "{{ workload.k }}"}, "code": code}}
        ]
        head = {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": "child", "path": "canary/child"},
        }
        return head | {"workload": {"k": ""}, "workflow": steps}

    def credentials(self) -> dict[str, dict[str, Any]]:
        """What is stored, by name."""
        password = self.canaries["stored_password"]
        return {
            "stored": {"username": "loader", "password": password, "token": self.canaries["stored_token"]},
            "stored_key": {"api_key": self.canaries["stored_key"]},
            "numbers": {name: self.canaries.number(f"number_{name}") for name in ("api_key", "pin")}
            | {"port": 5432, "timeout": 30},
            "stored_pg": {"dsn": self._dsn, "password": self.canaries["stored_pg"]},
        }


def write(folder: Path, name: str, playbook: Playbook) -> str:
    """A playbook as a file; JSON is YAML."""
    (folder / name).write_text(json.dumps(playbook, indent=1), encoding="utf-8")
    return name
