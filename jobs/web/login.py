"""The login page. It needs nothing but itself and `/assets/`, for it is shown to people who are not let in yet."""

from __future__ import annotations

from html import escape

SCRIPT = """\
"use strict";
const code = decodeURIComponent(location.hash.slice(1));
if (code) {
  history.replaceState(null, "", location.pathname);
  document.querySelector("input[name=code]").value = code;
  document.querySelector("form").submit();
}
"""


def login_page(problem: str | None = None) -> str:
    """The page's HTML. `problem` says why the last try did not work."""
    told = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · Sostenuto</title>
</head>
<body>
<main>
<h1>Sostenuto</h1>
{told}
<form method="post" action="/login" autocomplete="off">
<p><label>One-time code <input name="code" required autofocus spellcheck="false"></label> <button>Log in</button></p>
</form>
<p>Make a code on the machine that runs Sostenuto: <code>sostenuto tokens login-code</code></p>
</main>
<script src="/assets/login.js"></script>
</body>
</html>
"""
