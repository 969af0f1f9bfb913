"""The charsets that a response may name: those of the web and of old systems, each decoded in linear time.

Python has codecs that are none for texts from strangers: some give lone surrogates, which nothing can write
again, and some take quadratic time. So a charset is looked up in this list and never among all codecs; a
name that is not here means UTF-8.
"""

from __future__ import annotations

import codecs
from encodings import normalize_encoding
from encodings.aliases import aliases
from functools import lru_cache
from typing import Final

_CODECS: Final = frozenset(
    (
        *("utf_8", "utf_8_sig", "ascii"),
        *("utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be"),
        *("latin_1", *(f"iso8859_{number}" for number in range(1, 17) if number != 12)),
        *(f"cp{number}" for number in range(1250, 1259)),
        *("cp437", "cp775", "cp850", "cp852", "cp855", "cp857", "cp858", "cp862", "cp864", "cp866", "cp874"),
        *("koi8_r", "koi8_u", "koi8_t", "kz1048", "ptcp154", "cp1125", "tis_620"),
        *("mac_roman", "mac_cyrillic", "mac_greek", "mac_iceland", "mac_latin2", "mac_turkish"),
        *("shift_jis", "shift_jis_2004", "shift_jisx0213", "cp932", "euc_jp", "euc_jis_2004", "euc_jisx0213"),
        *("iso2022_jp", "iso2022_jp_1", "iso2022_jp_2", "iso2022_jp_2004", "iso2022_jp_3", "iso2022_jp_ext"),
        *("gb2312", "gbk", "gb18030", "hz", "big5", "big5hkscs", "cp950"),
        *("euc_kr", "cp949", "johab", "iso2022_kr"),
    )
)  # fmt: skip
_BY_NAME: Final = {
    **{alias: codec for alias, codec in aliases.items() if codec in _CODECS},
    **{codec: codec for codec in _CODECS},
    "x_sjis": "cp932",
    "windows_31j": "cp932",
    "windows_874": "cp874",
    "iso_8859_8_i": "iso8859_8",
    "x_euc_jp": "euc_jp",
    "x_gbk": "gbk",
    "x_mac_roman": "mac_roman",
    "x_mac_cyrillic": "mac_cyrillic",
}


@lru_cache(maxsize=128)
def codec_of(charset: str) -> str:
    """The codec for a charset as a response writes it."""
    found = _BY_NAME.get(normalize_encoding(charset).lower())
    return "utf-8" if found is None else codecs.lookup(found).name
