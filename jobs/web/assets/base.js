"use strict";
/* What every page needs: changing what is shown, times, requests and what is told of them. Each view has a script of its
   own that uses what is here. All texts come from the server, escaped there; what arrives as HTML is only ever put in by
   `upsert`: an element with an id that is shown already is changed in its place, so that the same piece arriving twice is
   shown once. */

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const body = document.body;
const spoken = document.documentElement.lang;
const language = navigator.language.startsWith(spoken) ? navigator.language : spoken;
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const parsed = (html) => {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content;
};

/* --- changing what is shown --- */

Object.assign(Idiomorph.defaults.callbacks, {
  // What a person is filling in stays, as long as it is about the same thing.
  beforeNodeMorphed: (old, fresh) => !(old.dataset?.keep && old.dataset.keep === fresh.dataset?.keep),
  beforeAttributeUpdated: (name, node) =>
    !(name === "open" || (node.dataset?.unfolded && (name === "class" || name === "data-unfolded"))),
});

function upsert(html, append = null) {
  let added = 0;
  for (const fresh of [...parsed(html).children]) {
    const old = fresh.id && document.getElementById(fresh.id);
    if (old) Idiomorph.morph(old, fresh, { morphStyle: "outerHTML" });
    else if (append && fresh.id && !("update" in fresh.dataset)) {
      append.append(fresh);
      added += 1;
    } else continue;
    const shown = fresh.id && document.getElementById(fresh.id);
    if (shown && !shown.closest("[hx-disable]")) htmx.process(shown);
  }
  times();
  return added;
}

function times() {
  const now = Date.now();
  const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  for (const element of $$("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    element.title = moment.toLocaleString(language, { dateStyle: "medium", timeStyle: "long" });
    element.textContent = "clock" in element.dataset ? clock(moment) : since(moment, now, relative);
  }
}

/* A moment as a datetime-local field wants it. */
const localField = (moment) => new Date(moment - moment.getTimezoneOffset() * 60000).toISOString().slice(0, 16);

function clock(moment) {
  const today = new Date().toDateString() === moment.toDateString();
  const day = today ? {} : { month: "short", day: "numeric" };
  const shape = { ...day, hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return moment.toLocaleString(language, shape);
}

/* A span as the server writes it: 45s, 3m 20s, 2h 5m, 3d 4h. */
function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  for (const [size, unit, smaller, name] of [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]) {
    if (whole < size) continue;
    const rest = Math.floor((whole % size) / smaller);
    return `${Math.floor(whole / size)}${unit}${rest ? ` ${rest}${name}` : ""}`;
  }
  return `${whole}s`;
}

function spans() {
  for (const element of $$("[data-since]")) element.textContent = span((Date.now() - new Date(element.dataset.since)) / 1000);
}

function since(moment, now, relative) {
  const seconds = (moment - now) / 1000;
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (Math.abs(seconds) >= size) return relative.format(Math.trunc(seconds / size), unit);
  }
  return relative.format(Math.trunc(seconds), "second");
}

let toastTimer = 0;
function toast(content, bad = false) {
  const place = $("#toast");
  place.replaceChildren(content);
  place.classList.toggle("bad", bad);
  place.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => place.classList.remove("shown"), bad ? 12000 : 6000);
}

function tellProblem(text) {
  let told = body.dataset.failed;
  try {
    const problem = JSON.parse(text);
    told = problem.detail + (problem.hint && !problem.hint.includes("sostenuto") ? ` (${problem.hint})` : "");
  } catch { /* not one of ours */ }
  toast(told, true);
}

/* --- requests --- */

/* What a view does with an answer: [selector of what asked, what to do with (asker, request, success)].
   The first that fits has it. Without one, a failure is told, and HTML of a `data-upsert` is put in. */
const answering = [];
const answered = (selector, act) => answering.push([selector, act]);

addEventListener("htmx:confirm", (event) => {
  if (!event.detail.question) return;
  event.preventDefault();
  const dialog = $("#confirm");
  $("#confirm-text").textContent = event.detail.question;
  dialog.returnValue = "no";
  dialog.onclose = () => { if (dialog.returnValue === "yes") event.detail.issueRequest(true); };
  dialog.showModal();
});

addEventListener("htmx:afterRequest", (event) => {
  const { elt, xhr } = event.detail;
  const successful = xhr.status >= 200 && xhr.status < 300;
  if (xhr.status === 401) { location.reload(); return; }
  reached(xhr.status !== 0);
  if (xhr.status === 0) { if (elt.id !== "side") toast(body.dataset.offline, true); return; }
  const own = answering.find(([selector]) => elt.matches(selector));
  if (own) own[1](elt, xhr, successful);
  else if (!successful) tellProblem(xhr.responseText);
  else if ("upsert" in elt.dataset) upsert(xhr.responseText);
});

addEventListener("click", (event) => {
  const unfold = event.target.closest("[data-unfold]");
  if (unfold) {
    const block = unfold.previousElementSibling;
    const open = block.classList.toggle("unfolded");
    block.dataset.unfolded = open ? "yes" : "";
    unfold.dataset.more ??= unfold.textContent;
    unfold.textContent = open ? unfold.dataset.less : unfold.dataset.more;
    unfold.setAttribute("aria-expanded", String(open));
  }
  if (event.target.closest("[data-logout]")) logOut();
});

/* --- the connection --- */

let connected = true;

/* Whether the server answers, shown on every page; who waits for it to be back listens for `sostenuto:back`. */
function reached(answers) {
  if (answers === connected) return;
  connected = answers;
  $("#offline").hidden = answers;
  if (answers) dispatchEvent(new Event("sostenuto:back"));
}

/* A GET whose answer may not come: null then. */
async function ask(url) {
  let answer = null;
  try { answer = await fetch(url); } catch { /* told by the banner */ }
  reached(answer !== null && answer.status < 502);
  if (answer?.status === 401) location.reload();
  return answer;
}

/* Puts in what a place shows now, if it is other than what it shows. */
async function refresh(place, address) {
  if (!place || document.hidden || place.dataset.asking) return false;
  const url = new URL(address);
  url.searchParams.set("rows", place.dataset.rows);
  url.searchParams.delete("lang");
  place.dataset.asking = "yes";
  const answer = await ask(url);
  const html = answer?.status === 200 ? await answer.text() : "";
  delete place.dataset.asking;
  if (html) upsert(html);
  return Boolean(html);
}

async function logOut() {
  const answer = await fetch("/logout", { method: "POST", headers: { "X-CSRF-Token": body.dataset.csrf } });
  if (answer.ok || answer.status === 401) {
    for (const name of Object.keys(localStorage)) if (name.startsWith("sostenuto-")) localStorage.removeItem(name);
    location.replace("/login");
  }
  else tellProblem(await answer.text());
}

addEventListener("toggle", async (event) => {
  const place = event.target.open && $("[data-fetch]", event.target);
  if (!place || place.closest("details") !== event.target) return;
  const answer = await fetch(place.dataset.fetch);
  if (answer.ok) place.replaceChildren(parsed(await answer.text()));
  times();
}, true);

times();
spans();
setInterval(times, 20000);
setInterval(spans, 1000);
