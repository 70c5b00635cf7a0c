"use strict";
/* Takes the code from the URL's fragment, which browsers do not send, and exchanges it without a plain form:
   the page that was asked for is then shown where it was asked for. */

const form = document.querySelector("form[action='/login']");
const field = form.querySelector("input[name=code]");
const problem = document.getElementById("login-problem");

async function logIn(event) {
  if (event) event.preventDefault();
  form.querySelector("button").disabled = true;
  let answer = null;
  try {
    answer = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code: field.value.trim() }),
    });
  } catch { /* told below */ }
  if (answer && answer.ok) {
    if (location.pathname === "/login") location.replace("/");
    else location.reload();
    return;
  }
  form.querySelector("button").disabled = false;
  if (answer === null) problem.textContent = document.body.dataset.offline;
  else problem.textContent = answer.status === 429 ? problem.dataset.tooMany : problem.dataset.refused;
  field.setAttribute("aria-invalid", "true");
  field.select();
}

form.addEventListener("submit", logIn);

function codeInFragment() {
  let code = "";
  try { code = decodeURIComponent(location.hash.slice(1)); } catch { /* not a code of ours */ }
  if (!/^[0-9A-Za-z-]{16,100}$/.test(code)) return;
  history.replaceState(null, "", location.pathname + location.search);
  field.value = code;
  logIn();
}

addEventListener("hashchange", codeInFragment);
codeInFragment();
