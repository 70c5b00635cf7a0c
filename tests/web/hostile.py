"""Texts that try to be more than text. `MARK` in any of them that ran would show in the page's own state."""

from __future__ import annotations

MARK = "window.pwned=1"
FOREIGN = "http://127.0.0.2:9"  # loopback, and not the page's own server: asking it is what must not happen

TEXTS = [
    f"<script>{MARK}</script>",
    f"</textarea></title></script><script>{MARK}</script>",
    f'"><img src=x onerror="{MARK}">',
    f"'><svg onload={MARK}>",
    f'<iframe srcdoc="<script>parent.{MARK}</script>"></iframe>',
    f'<iframe src="javascript:parent.{MARK}"></iframe>',
    f"<style>@import url({FOREIGN}/style.css); body {{ background: url({FOREIGN}/a.png) }}</style>",
    f'<link rel=stylesheet href="{FOREIGN}/x.css"><base href="{FOREIGN}/">',
    f'<meta http-equiv=refresh content="0;url={FOREIGN}/">',
    f'<form action="{FOREIGN}/"><button>go</button></form>',
    f'<a href="javascript:{MARK}">raw</a> <math><a xlink:href="javascript:{MARK}">m</a></math>',
    f'<div hx-get="{FOREIGN}/" hx-trigger="load">x</div> <b hx-on:click="{MARK}" data-hx-on-load="{MARK}">y</b>',
    f'<img src="{FOREIGN}/pixel.png"> <video src="{FOREIGN}/v"></video> <object data="{FOREIGN}/o"></object>',
    f"[link](javascript:{MARK}) [link](JaVaScRiPt:{MARK}) [link](java&#10;script:{MARK}) [x](&#106;avascript:{MARK})",
    f"[link](data:text/html,<script>{MARK}</script>) [link](vbscript:x) [link](//127.0.0.2:9/) [l](file:///etc/passwd)",
    f"![picture]({FOREIGN}/picture.png) ![picture](//127.0.0.2:9/p.png) ![p][r]\n\n[r]: {FOREIGN}/ref.png",
    f"![x](data:image/svg+xml;base64,PHN2Zy8+) ![x](x\"onerror=\"{MARK}) [x](http://e.example\"onmouseover=\"{MARK})",
    f"<javascript:{MARK}> <http://e.example/\"onclick=\"{MARK}>",
    f"```<script>{MARK}</script>\n<script>{MARK}</script>\n```\n\n    <script>{MARK}</script>",
    f"| a | b |\n|---|---|\n| <script>{MARK}</script> | <img src=x onerror={MARK}> |",
    "{{ 7*7 }} {% raw %} {{ config }} ${7*7} #{7*7} {{ ''.__class__ }} {{ t('app.new') }}",
    f"&lt;script&gt;{MARK}&lt;/script&gt; &#60;script&#62;{MARK}&#60;/script&#62; &#x202e;turned",
    "right\u202eto\u2066left\u2069 zero\u200bwidth \u061c \ufeff",
    "\x1b]52;c;ZXZpbA==\x07 \x1b[2J\x1b[31mred \x9b31m \x1b]8;;http://e.example\x1b\\link\x1b]8;;\x1b\\ \x85",
    f"<noscript><p title=\"</noscript><script>{MARK}</script>\"> <template><script>{MARK}</script></template>",
    "data: injected\n\nevent: end\ndata: x\nid: 9-9\r\rretry: 1\u2028data: y",
    "__proto__ constructor toString id=head name=content",
]  # fmt: skip

LINES = [" ".join(text.split()) for text in TEXTS]  # for fields of one line
ALL = "\n\n".join(TEXTS)
