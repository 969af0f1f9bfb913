"""Every fragment the five seed documents print, with the files that hold it, to be ticked off against them.

The seeds themselves are no part of the repository, so the list was made by hand: documents in order, and in
each document what it prints from top to bottom. 000, 001 and 004 fence their fragments; 002 lost its fences
and its indentation in print; 003 has fences, lines in backticks and one-line forms in its text.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Printed(NamedTuple):
    """One printed fragment: the file or files it became, or why it became none."""

    document: str
    section: str
    files: tuple[str, ...] = ()
    not_a_playbook: str = ""


def _printed(document: str, section: str, *files: str) -> Printed:
    return Printed(document, section, tuple(f"{document}-{file}.yaml" for file in files))


def _other(document: str, section: str, what: str) -> Printed:
    return Printed(document, section, not_a_playbook=what)


PRINTED: Final = (
    # --- 000: ten fences, eight of them YAML ------------------------------------------------------------
    _printed("000", "§1.4 task policy", "1.4-task-policy"),
    _printed("000", "§2.1 keychain", "2.1-keychain"),
    _printed("000", "§2.2 executor", "2.2-executor"),
    _printed("000", "§2.A executor", "2.A-executor"),
    _printed("000", "§3.1 labelled tasks", "3.1-labelled-tasks"),
    _printed("000", "§3.2 router", "3.2-next-router", "3.2-next-router-inclusive"),
    _other("000", "§4.1 merge order", "pseudo code"),
    _printed("000", "§5.1 admission", "5.1-admission"),
    _other("000", "§5.2 outcome envelope", "JSON of a record"),
    _printed("000", "§8 loop", "8-loop-sequential", "8-loop-parallel"),
    # --- 001: twenty-two fences, fourteen of them YAML ---------------------------------------------------
    _printed("001", "§1.1 case_mode: exclusive", "1.1-case-mode-exclusive"),
    _printed("001", "§1.1 case_mode: inclusive", "1.1-case-mode-inclusive"),
    _printed("001", "§1.2 eval_mode: on_event", "1.2-eval-mode-on-event"),
    _printed("001", "§1.3 branch_order", "1.3-branch-order"),
    _printed("001", "§2.2 next_policy: end_step", "2.2-end-step"),
    _printed("001", "§2.2 next_policy: break_chain", "2.2-break-chain"),
    _printed("001", "§2.4 next, four forms", "2.4-next-syntax"),
    _printed("001", "§3.1 then", "3.1-task-structure"),
    _printed("001", "§4.1 retry.scope: tool", "4.1-retry-scope-tool"),
    _printed("001", "§4.1 retry.scope: chain", "4.1-retry-scope-chain"),
    _printed("001", "§4.3 polling", "4.3-polling"),
    _other("001", "§4.4 action_id", "pseudo code"),
    _other("001", "§5.1 event layers", "a drawing"),
    _other("001", "§5.3 event envelope", "JSON of a record"),
    _other("001", "§5.4 case.evaluated", "JSON of a record"),
    _other("001", "§5.4 next.evaluated", "JSON of a record"),
    _other("001", "§5.5 nesting", "a drawing"),
    _other("001", "§6.2 key structure", "a key pattern"),
    _other("001", "§6.3 value structure", "JSON of a record"),
    _printed(
        "001",
        "§7 complete step",
        "7-complete-step",
        "7-complete-step-second-words",
        "7-complete-step-third-words",
    ),
    _printed("001", "§9 before", "9-before"),
    _printed("001", "§9 after", "9-after"),
    # --- 002: seventeen fragments without fences -----------------------------------------------------------
    _printed("002", "§2.1 apiVersion", "2.1-api-version"),
    _printed("002", "§4 step", "4-step-schema"),
    _printed("002", "§4.1 tool", "4.1-tool-kinds"),
    _printed("002", "§5 workbook", "5-workbook-schema"),
    _printed("002", "§5 workbook, example", "5-workbook-example"),
    _printed("002", "§6.1 loop", "6.1-loop-syntax"),
    _printed("002", "§6.3 loop, example", "6.3-loop-example"),
    _printed("002", "§7.1 retry", "7.1-retry-syntax"),
    _printed("002", "§8.1 case", "8.1-case-syntax"),
    _printed("002", "§8.4 case, example", "8.4-case-example"),
    _printed("002", "§9.1 next, three forms", "9.1-next-string", "9.1-next-list", "9.1-next-with-args"),
    _printed("002", "§9.2 invalid", "9.2-conditional-next"),
    _printed("002", "§9.2 valid", "9.2-case-and-next"),
    _printed("002", "§10 sink", "10-sink", "10-sink-kinds"),
    _printed("002", "§11.1 vars", "11.1-vars-syntax"),
    _printed("002", "§11.3 vars, example", "11.3-vars-example"),
    _printed("002", "Appendix A", "A-complete-playbook"),
    # --- 003: five fences of YAML, one of SQL, one without a language; the rest in backticks ----------------
    _printed("003", "Variable Management, vars", "variables-vars"),
    _printed("003", "Variable Management, set", "variables-set"),
    _printed("003", "§1.1 step shape", "1.1-step-shape"),
    _printed("003", "§2.1 next, three forms", "2.1-next-string", "2.1-next-names", "2.1-next-steps"),
    _printed("003", "§2.3 conditional start", "2.3-conditional-start"),
    _printed("003", "§2.3 loop with args", "2.3-loop-with-args"),
    _other("003", "§4 Event, Command, ControlFlowEngine", "Python"),
    _other("003", "§5.2 auth_cache", "SQL"),
    _other("003", "§6 CaseEntry", "Python"),
    _printed("003", "attributes §1 shape", "attributes-1-case-shape"),
    _printed("003", "attributes §2 example", "attributes-2-loop-example"),
    _printed("003", "attributes §3 mixed layers", "attributes-3-flat-tool"),
    _printed("003", "attributes §3 recommended shape", "attributes-3-recommended-shape"),
    _printed("003", "prompt §1 keys of a step", "prompt-1-step-schema"),
    _printed("003", "prompt §1.1 loop", "prompt-1.1-loop"),
    _printed("003", "prompt §1.3 case", "prompt-1.3-case"),
    _printed("003", "prompt §1.3 paginated HTTP step", "prompt-1.3-paginated-http"),
    _printed("003", "prompt §1.4 next, two forms", "prompt-1.4-next-string", "prompt-1.4-next-names"),
    _printed("003", "prompt §1.4 conditional transitions", "prompt-1.4-conditional-transitions"),
    _printed("003", "prompt §1.5 sink", "prompt-1.5-sink"),
    _other("003", "prompt §2 Event, ToolCall, Command, ControlFlowEngine", "Python"),
    _printed(
        "003",
        "small patch, next, three forms",
        "patch-next-string",
        "patch-next-names",
        "patch-next-with-args",
    ),
    # --- 004: twenty-one fences, of which thirteen are grammar productions ----------------------------------
    _printed("004", "§1.1 Playbook ::=", "1.1-playbook"),
    _printed("004", "§1.2 Workload ::=", "1.2-workload"),
    _printed("004", "§1.3 StepList ::=", "1.3-step", "1.3-run-on-step"),
    _printed("004", "§1.3.1 IteratorTask ::=", "1.3.1-iterator", "1.3.1-iterator-over-array"),
    _printed("004", "§1.3.1 example", "1.3.1-city-loop"),
    _printed("004", "§1.3.2 Join ::=", "1.3.2-join", "1.3.2-join-end"),
    _printed("004", "§1.3.2 example", "1.3.2-aggregate-alerts", "1.3.2-aggregate-iterator"),
    _printed("004", "§1.3.3 CallBlock ::=", "1.3.3-call"),
    _printed("004", "§1.3.4 TaskInvocationList ::=", "1.3.4-task-invocations", "1.3-run-on-step"),
    _printed("004", "§1.3.5 TransitionList ::=", "1.3.5-transitions"),
    _printed("004", "§1.3.5 example", "1.3.5-transition-example"),
    _printed("004", "§1.3.6 ContextMap ::=", "1.3.6-context-map"),
    _printed("004", "§1.4 TaskList ::=", "1.4-tasks"),
    _printed("004", "§1.4.1 global tasks", "1.4.1-global-tasks"),
    _printed("004", "§1.4.2.1 <task_definition> ::=", "1.4.2.1-task-definition"),
    _printed("004", "§1.4.2.1 example", "1.4.2.1-composite", "1.4.2.1-reference"),
    _printed("004", "§1.4.2.2 HTTPTask ::=", "1.4.2.2-http-task"),
    _printed("004", "§1.4.2.2 example", "1.4.2.2-get-forecast"),
    _printed("004", "§1.4.2.3 PythonTask ::=", "1.4.2.3-python-task"),
    _printed("004", "§1.4.2.3 example", "1.4.2.3-evaluate-weather"),
    _printed("004", "§4 example", "4-parallel-run"),
)

COUNTED: Final = {"000": 8, "001": 14, "002": 17, "003": 18, "004": 21}
"""How many fragments of playbooks each document prints; forms printed together count as one."""
