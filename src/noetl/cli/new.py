"""`noetl new`: writes a commented starter playbook."""

from __future__ import annotations

import os
import re
from typing import Final

from noetl.cli.arguments import Parser
from noetl.cli.files import write_text
from noetl.errors import UsageError
from noetl.settings import Settings

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

STARTER: Final = """\
# {name}: a starter playbook. Check it with `noetl validate`, read it with `noetl explain`.
#
# It loops over a few cities, retries the unreliable part, adds up the results, and takes another
# route when something fails. Replace the Python by the tools you need: http, postgres, duckdb, ...
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: {name}
  path: {name}

# Inputs with their defaults; a run may override them (--set limit=10).
workload:
  cities: [Oslo, Rome, Baku]
  limit: 20

workflow:
  # Every playbook begins at the step called `start`.
  - step: start
    desc: Measure each city, two at a time
    loop:
      in: "{{{{ workload.cities }}}}"
      iterator: city
      spec:
        mode: parallel
        max_in_flight: 2
    # The tasks of a step run in order; each sees the results of those before it, by their labels.
    tool:
      - measure:
          kind: python
          args:
            city: "{{{{ city }}}}"
            attempt: "{{{{ _attempt }}}}"
          code: |
            if city == "Rome" and attempt == 1:
                raise RuntimeError("the sensor did not answer")
            result = {{"city": city, "degrees": len(city) * 5}}
          spec:
            policy:
              # Asked from top to bottom after each call: the first rule that matches decides.
              rules:
                - when: "{{{{ outcome.status == 'error' }}}}"
                  then: {{do: retry, attempts: 3, backoff: exponential, delay: 100ms}}
                - else:
                    then: {{do: continue}}
      - judge:
          kind: python
          args:
            measured: "{{{{ measure }}}}"
            limit: "{{{{ workload.limit }}}}"
          code: |
            result = {{**measured, "hot": measured["degrees"] > limit}}
    # Where to go when all cities are done, and where if one of them failed for good.
    next:
      spec:
        mode: exclusive
      arcs:
        - step: failed
          when: "{{{{ event.name == 'step.failed' }}}}"
        - step: report
          when: "{{{{ event.name == 'loop.done' }}}}"

  - step: report
    desc: Name the hot cities
    tool:
      kind: python
      args:
        cities: "{{{{ start }}}}"
      code: |
        result = {{"hot": [city["city"] for city in cities if city["hot"]]}}

  - step: failed
    desc: The place to raise an alarm
    tool:
      kind: python
      args:
        error: "{{{{ start.error }}}}"
      code: |
        result = {{"alarm": str(error)}}
"""


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "new",
        "Writes NAME.yaml, a commented playbook with a loop, a retry and a route for failures.",
        "noetl new my_report",
    )
    parser.add_argument("name", metavar="NAME", help="letters, digits, `_` and `-`, beginning with a letter")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-o", "--output", metavar="FILE", help="the file to write (default: NAME.yaml)")
    where.add_argument("--dir", metavar="DIR", help="the folder to write NAME.yaml into")
    parser.add_argument("--force", action="store_true", help="overwrite a file that is there")
    options = parser.parse_args(arguments)
    if not NAME.fullmatch(options.name):
        raise UsageError(
            f"`{options.name}` cannot be the name of a playbook: use letters, digits, `_` and `-`, "
            "and begin with a letter"
        )
    path = options.output or os.path.join(options.dir or "", f"{options.name}.yaml")
    if os.path.lexists(path) and not options.force:
        raise UsageError(f"{path} is there already; --force overwrites it")
    write_text(path, STARTER.format(name=options.name))
    if path != "-":
        print(f"wrote {path}")
        print(f"next:  noetl validate {path}\n       noetl explain {path}\n       noetl run {path}")
    return 0
