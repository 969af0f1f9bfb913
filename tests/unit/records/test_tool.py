"""What can be read from a tool kind's description, and that a module can be a tool kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from noetl.records.outcome import Outcome, OutcomeMeta
from noetl.records.protocols import ToolCall, ToolContext, ToolKind
from noetl.records.tool import ToolDescription, field_types


class Config(msgspec.Struct, frozen=True, kw_only=True):
    to: Annotated[str, Meta(description="Who.")]
    from_: Annotated[list[str] | None, Meta(description="Since.")] = msgspec.field(name="from", default=None)
    tone: Annotated[Literal["warm", "cool"], Meta(description="How.")] = "warm"
    place: Annotated[Literal["here", "there"] | None, Meta(description="Where.")] = None
    either: Annotated[Literal["a"] | int, Meta(description="What.")] = 1
    bare: Any = None


DESCRIPTION = ToolDescription(kind="greeting", summary="Greets.", config=Config)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    return Outcome(status="ok", meta=OutcomeMeta(attempt=call.attempt, duration_ms=0, ts=""))


class GreetingKind:
    DESCRIPTION = DESCRIPTION

    async def run(self, call: ToolCall, context: ToolContext) -> Outcome:
        return await run(call, context)


KIND: ToolKind = GreetingKind()


def test_fields_have_the_names_that_playbooks_write_in_the_order_of_the_struct() -> None:
    assert list(field_types(DESCRIPTION)) == ["to", "from", "tone", "place", "either", "bare"]


def test_a_field_says_whether_it_is_required_and_what_it_is_for() -> None:
    fields = field_types(DESCRIPTION)
    assert fields["to"].required
    assert not fields["from"].required
    assert fields["to"].description == "Who."
    assert fields["bare"].description == ""
    assert fields["tone"].default == "warm"


def test_choices_are_those_of_a_type_that_takes_no_other_text() -> None:
    fields = field_types(DESCRIPTION)
    assert fields["tone"].choices == ("warm", "cool")
    assert fields["place"].choices == ("here", "there")
    assert fields["either"].choices == ()
    assert fields["to"].choices == ()


def test_a_constant_converts_to_the_type_of_its_field_or_not() -> None:
    fields = field_types(DESCRIPTION)
    assert msgspec.convert(["a"], fields["from"].type) == ["a"]
    for name, value in (("to", 5), ("from", "a"), ("tone", "loud")):
        try:
            msgspec.convert(value, fields[name].type)
        except msgspec.ValidationError:
            continue
        raise AssertionError(f"{value!r} fits `{name}`")


def test_the_fields_of_a_kind_are_worked_out_once() -> None:
    assert field_types(DESCRIPTION) is field_types(DESCRIPTION)


def test_an_object_with_a_description_and_run_is_a_tool_kind() -> None:
    assert KIND.DESCRIPTION.kind == "greeting"
