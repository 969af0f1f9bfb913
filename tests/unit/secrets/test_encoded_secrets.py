"""Secrets in whatever way addresses, JSON and base64 write them, in whatever pieces that comes."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import textwrap
import time
from collections.abc import AsyncIterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.secrets.encoded_forms import letters, letters_view, unescaped
from noetl.secrets.redaction import MASK, SHORTEST_PIECE, Redactor

SECRET = "s3cr3t@pass wörd+canary"
AWKWARD = 'q1@w2:e3 r4/t5+y6=u7&i8%41o9"p0\\n{a1}é€😀z2'
LONG = "".join(f"{number:02x}Kq/+" for number in range(60))
words = st.text("abc .%+\\/=4", max_size=12)


def redactor(*secrets: str) -> Redactor:
    made = Redactor()
    for secret in secrets or (SECRET,):
        made.register(secret)
    return made


def streamed(made: Redactor, body: bytes, size: int) -> bytes:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    async def whole() -> bytes:
        return b"".join([piece async for piece in made.stream(pieces())])

    return asyncio.run(whole())


def logged(made: Redactor, text: str, size: int) -> str:
    """What a log shows of a text that comes in pieces."""
    shown, held = "", ""
    for start in range(0, len(text), size):
        piece = made.text(held + text[start : start + size])
        end = made.unfinished(piece)
        shown, held = shown + piece[:end], piece[end:]
    return shown + made.cut_text(held)


@st.composite
def url_forms(draw: st.DrawFn, secret: str) -> str:
    """Each sign as it is or escaped, in either case; a space in any of three ways."""
    written = ""
    for character in secret:
        escaped = "".join(f"%{byte:02X}" for byte in character.encode())
        ways = [character, escaped, escaped.lower(), *("+" for _ in range(character == " "))]
        written += character if character.isascii() and character.isalnum() else draw(st.sampled_from(ways))
    return written


@pytest.mark.parametrize(
    "written",
    [
        "s3cr3t@pass%20w%C3%B6rd+canary",
        "s3cr3t@pass+w%C3%B6rd%2Bcanary",
        "s3cr3t%40pass+w%c3%b6rd%2bcanary",
        "s3cr3t%2540pass%2520w%25C3%25B6rd%252Bcanary",
        "%73%33%63%72%33%74@pass%20w%C3%B6rd%2Bcanary",
        "s3cr3t@pass w\\u00f6rd+canary",
        "s3cr3t\\u0040pass\\u0020w\\u00F6rd\\u002Bcanary",
        "s3cr3t@pass w\\xc3\\xb6rd+canary",
        "".join(f"\\u{ord(character):04x}" for character in SECRET),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        json.dumps(json.dumps(json.dumps(SECRET))).strip('\\"'),
    ],
)
def test_a_secret_is_found_with_any_of_its_signs_escaped(written: str) -> None:
    assert (
        redactor().text(f"GET https://h/?q={written}&r=1%20+\\/ x") == f"GET https://h/?q={MASK}&r=1%20+\\/ x"
    )


@given(url_forms(AWKWARD), words, words)
def test_no_choice_of_what_is_escaped_in_an_address_hides_a_secret(
    form: str, before: str, after: str
) -> None:
    shown = redactor(AWKWARD).text(f"{before}x&{form}&x{after}")
    assert shown == f"{before}x&{MASK}&x{after}"


@given(url_forms(AWKWARD), st.integers(1, 9))
@settings(max_examples=40)
def test_an_escaped_secret_is_found_across_the_borders_of_pieces(form: str, size: int) -> None:
    text = f"%41 a+b {form} 100% "
    made = redactor(AWKWARD)
    assert streamed(made, text.encode(), size) == f"%41 a+b {MASK} 100% ".encode()
    assert logged(made, text, size) == f"%41 a+b {MASK} 100% "


@given(url_forms(AWKWARD), st.data())
@settings(max_examples=40)
def test_an_address_that_was_cut_shows_no_piece_of_a_secret(form: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(form)))
    made = redactor(AWKWARD)
    for shown in (made.cut_text(f"not here: {form[:cut]}"), made.cut_text(f"{form[cut:]} was it")):
        pieces = re.findall("[0-9a-z@:/=&]+", shown)
        assert not any(len(piece) > SHORTEST_PIECE and piece in AWKWARD for piece in pieces), shown


@pytest.mark.parametrize("escaped", ["abCD\\/efGH", "abCD\\\\/efGH", "abCD\\u002fefGH", "abCD%2fefGH"])
def test_a_slash_may_be_escaped_in_json(escaped: str) -> None:
    assert redactor("abCD/efGH").text(f'{{"a":"{escaped}"}}') == f'{{"a":"{MASK}"}}'


@pytest.mark.parametrize("end", ["\n", "\r\n", "\\n", "\\r\\n", "\n    ", "%0A", "%0D%0A"])
@pytest.mark.parametrize("columns", [64, 76])
@pytest.mark.parametrize("before", ["", "u", "user:", "a user with a rather long name that takes a line:"])
def test_base64_is_found_however_its_lines_are_broken(end: str, columns: int, before: str) -> None:
    encoded = base64.b64encode(f"{before}{LONG}:and more".encode()).decode()
    wrapped = end.join(textwrap.wrap(encoded, columns))
    made = redactor(LONG)
    inner = [base64.b64encode(b"\0" * shift + LONG.encode()).decode()[4:-4] for shift in range(3)]
    text = f"it is\n\n{wrapped}\n\nand so on\n"
    for shown in (
        made.text(text),
        streamed(made, text.encode(), 50).decode(),
        logged(made, text, columns + 1),
    ):
        assert MASK in shown
        assert shown.startswith("it is\n\n")
        assert shown.endswith("\n\nand so on\n")
        left = letters(shown.encode()).decode()
        for form in inner:
            plain = letters(form.encode()).decode()
            assert not any(plain[at : at + 12] in left for at in range(len(plain) - 12))


def test_base64_may_have_its_signs_escaped_and_goes_with_its_padding() -> None:
    secret = "??>>~~?? ÿÿÿ>?"
    whole = base64.b64encode(secret.encode()).decode()
    assert set("+/=") <= set(whole)
    made = redactor(secret)
    for form in (whole, quote(whole, safe=""), whole.replace("/", "\\/"), whole.replace("+", "\\u002B")):
        assert made.text(f"[{form}]") in (f"[{MASK}]", f"[/{MASK}]")
    assert made.text(f"[{base64.urlsafe_b64encode(secret.encode()).decode()}]") == f"[{MASK}]"


def test_a_secret_in_several_secrets_is_masked_as_the_longest() -> None:
    made = redactor("quiet-magpie", "user quiet-magpie of the house")
    assert made.text("a user%20quiet-magpie%20of%20the+house!") == f"a {MASK}!"
    body = b"a user quiet-magpie of the house, user quiet-magpie"
    for size in (1, 5, 18, 100):
        assert streamed(made, body, size) == b"a ***, user ***"


@pytest.mark.parametrize(
    "text",
    ["100%", "a+b=c", "C:\\new\\table", "%zz \\u12", "s3cr3t", "x" * 200 + "%", "\\" * 50, "s3cr3t@pass%20"],
)
def test_what_is_escaped_and_no_secret_stays_as_it_is(text: str) -> None:
    made = redactor()
    assert made.text(text) is text
    assert streamed(made, text.encode(), 3) == text.encode()
    assert made.data({"a": [text]}) == {"a": [text]}


@given(st.text("ab%25\\u0041xn+/= \r\n-_F", max_size=60))
def test_the_quick_view_is_the_one_that_knows_its_places(text: str) -> None:
    data = text.encode()
    view = letters_view(data)
    assert letters(data) == view.content
    for seen in (view, unescaped(data)):
        places = [(seen.begin(place), seen.end(place)) for place in range(len(seen.content))]
        assert all(begin < end <= len(data) for begin, end in places)
        assert places == sorted(places)


@pytest.mark.parametrize("unit", ["\\", "%25", "%", "\\u00", "+", "s3cr3t@", "=\n", "%41", "a"])
def test_no_text_takes_long(unit: str) -> None:
    made = redactor(*(f"{number}{SECRET}" for number in range(10)), "aaaaaaab")
    text = unit * (200_000 // len(unit))
    began = time.process_time()
    assert made.text(text) == text
    assert made.unfinished(text) <= len(text)
    assert streamed(made, text.encode(), 1 << 16) == text.encode()
    assert time.process_time() - began < 5  # a few hundredths; minutes where it is looked at from each place
