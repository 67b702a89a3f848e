"""More than 500 device ids that must be refused before MQTT or Redis sees them (F93).

Every entry breaks the allow-lists of device ids, methods and node ids. Some have lone surrogates: they cannot be
encoded in UTF-8, so they reach an HTTP API only as JSON escapes, and a URL not at all. `""`, `.`, `..` and whatever
has a `/` change the path of a URL unless they are percent-encoded.
"""

from __future__ import annotations

from string import ascii_letters, digits
from urllib.parse import quote, unquote

GOOD = "1ZNDH1D0010098"

SEPARATORS = ["/", "//", "\\", "+", "#", "$", "*", "?", "%", "&", "=", ";", ",", "|", "@", "!", "~", "^", "`", "'", '"']
BRACKETS = ["(", ")", "[", "]", "{", "}", "<", ">"]
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
SPACES = [" ", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"]
INVISIBLE = [
    "\u00ad",
    "\u034f",
    "\u200b",
    "\u200c",
    "\u200d",
    "\u200e",
    "\u202e",
    "\u2060",
    "\u2066",
    "\ufe0f",
    "\ufeff",
]
SURROGATES = ["\ud800", "\udbff", "\udc00", "\udfff", "\udc80", "\ud83d", "\ude00"]
NONCHARACTERS = ["\ufdd0", "\ufdef", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff"]
LOOK_ALIKES = [
    *"АВЕКМНОРСТХаеорсухіѕјԁԛԝ",  # Cyrillic
    *"ΑΒΕΖΗΙΚΜΝΟΡΤΥΧονι",  # Greek
    *"０１９ＡＺａｚ＿．：－／＋＃＄",  # full width
    *"٠١٩۰۹०९๐๙𝟎𝟗²³¹①⑨½",  # digits for \d, isdigit() or isnumeric()
    *"éüßñçøÅ\u212a\u017fİı",  # letters for \w; three of them are ASCII after a change of case
    *"‐‑‒–—−․‥…‧∶ː꞉∕⁄⧸╱﹢﹟﹩",  # punctuation
    "e\u0301",
    "ﬁ",
    "🚁",
]
TOPIC_SHAPES = [
    ".",
    "..",
    "../" + GOOD,
    GOOD + "/..",
    "./" + GOOD,
    "/" + GOOD,
    GOOD + "/",
    "//",
    "///",
    "a//b",
    "+/+",
    "#/a",
    "/#",
    "/+",
    "+/#",
    f"{GOOD}/services",
    f"{GOOD}/services_reply",
    f"{GOOD}/+",
    f"{GOOD}/#",
    f"+/{GOOD}",
    f"x/thing/product/{GOOD}/services",
    "$share/",
    "$share/group",
    "$share/group/#",
    f"$share/group/{GOOD}",
    f"$share//{GOOD}",
    "$queue/" + GOOD,
    "$SYS",
    "$SYS/#",
    "$SYS/broker/uptime",
    "$aws/things/" + GOOD,
    "$dps/registrations",
    "{device_id}",
    "{id}",
    "%s",
    "%(device_id)s",
    "%2f",
    "%2F..%2F",
    "%00",
    "%252f",
    "\\u0000",
    "\\x00",
    "&#47;",
    "*:*",
    "mqtt:callback:{000}:x",
    "{042}",
    f"{GOOD}\r\nDEL mqtt:due:{{000}}",
    "*3\r\n$3\r\nDEL\r\n",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    f"{GOOD}\nlevel=error forged=1",
    '{"$gt":""}',
    "' OR '1'='1",
    "<script>alert(1)</script>",
    "${jndi:ldap://x}",
    "$(reboot)",
    "`reboot`",
    "; reboot",
    "| reboot",
]
TOO_LONG = [
    "a" * 129,
    "a" * 130,
    "." * 129,
    ":" * 255,
    "0" * 256,
    "a" * 1_000,
    "a" * 65_535,
    "a" * 65_536,
    "é" * 64,
    "é" * 128,
    "a" * 128 + "\n",
    "\n" + "a" * 128,
    "a/" * 64,
    "/" * 128,
    "a" * 65_536 + "/#",
]


def hostile_ids() -> list[str]:
    """All of them, each once, in a fixed order."""
    characters = [
        *SEPARATORS,
        *BRACKETS,
        *CONTROLS,
        *SPACES,
        *INVISIBLE,
        *SURROGATES,
        *NONCHARACTERS,
        *LOOK_ALIKES,
    ]
    placed = [
        shape
        for character in characters
        for shape in (
            character,
            character + GOOD,
            GOOD[:7] + character + GOOD[7:],
            GOOD + character,
        )
    ]
    return list(dict.fromkeys(["", *placed, *TOPIC_SHAPES, *TOO_LONG]))


def is_device(text: str) -> bool:
    """True if one of them is the name of a device all the same, or its id: escaped, it has plain letters only."""
    name = unquote(text)
    return (
        name.isprintable()
        and not set("+#$*%\ufffd") & set(name)
        and not {"", ".", ".."} & set(name.split("/"))
        and len(quote(name, safe=":")) <= 128
    )


def is_method(text: str) -> bool:
    """True if one of them is a method all the same: those may have slashes, such as device/rename."""
    parts = text.split("/")
    plain = all(
        part and set(part) <= set(ascii_letters + digits + "_.:-") and part not in (".", "..") for part in parts
    )
    return len(parts) > 1 and plain and len(text) <= 128
