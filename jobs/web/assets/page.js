"use strict";
/* What changes by itself, and what a form needs beyond plain HTML. All texts come from the server, escaped there; what
   arrives as HTML is only ever put in by `upsert`: an element with an id that is shown already is changed in its place,
   so that the same piece arriving twice is shown once. */

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

function clock(moment) {
  const today = new Date().toDateString() === moment.toDateString();
  const day = today ? {} : { month: "short", day: "numeric" };
  const shape = { ...day, hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return moment.toLocaleString(language, shape);
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
  if (xhr.status === 0) { if (elt.id !== "side") toast(body.dataset.offline, true); return; }
  if (elt.closest("[data-new]")) { newTaskAnswered(elt, xhr, successful); return; }
  if (!successful) { tellProblem(xhr.responseText); return; }
  if ("older" in elt.dataset) showOlder(xhr.responseText);
  else if (elt.closest("[data-bulk]")) { toast(parsed(xhr.responseText)); refreshList(); }
  else if ("upsert" in elt.dataset) {
    upsert(xhr.responseText);
    if ("clear" in elt.dataset) for (const field of $$("textarea", elt)) field.value = "";
    if (elt.id !== "side") stream?.wake();
  }
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

async function logOut() {
  const answer = await fetch("/logout", { method: "POST", headers: { "X-CSRF-Token": body.dataset.csrf } });
  if (answer.ok || answer.status === 401) location.replace("/login");
  else tellProblem(await answer.text());
}

addEventListener("toggle", async (event) => {
  const place = event.target.open && $("[data-fetch]", event.target);
  if (!place) return;
  const answer = await fetch(place.dataset.fetch);
  if (answer.ok) place.replaceChildren(parsed(await answer.text()));
  times();
}, true);

/* --- the list --- */

const chosen = new Set();

function showChosen() {
  const boxes = $$("input[name=job]");
  for (const box of boxes) box.checked = chosen.has(box.value);
  const bar = $("#bulk");
  if (!bar) return;
  bar.hidden = chosen.size === 0;
  $("[data-count]", bar).textContent = chosen.size;
  const all = $("[data-all]");
  if (all) {
    all.checked = boxes.length > 0 && boxes.every((box) => box.checked);
    all.indeterminate = !all.checked && boxes.some((box) => box.checked);
  }
}

async function refreshList() {
  const rows = $("#rows");
  if (!rows || document.hidden) return;
  const url = new URL(location.href);
  url.searchParams.set("rows", rows.dataset.rows);
  url.searchParams.delete("lang");
  let answer;
  try { answer = await fetch(url); } catch { return; }
  if (answer.status === 401) location.reload();
  if (answer.status !== 200) return;
  upsert(await answer.text());
  showChosen();
}

if ($("#rows")) {
  addEventListener("change", (event) => {
    const box = event.target;
    if (box.name === "job") box.checked ? chosen.add(box.value) : chosen.delete(box.value);
    else if ("all" in box.dataset) {
      for (const { value } of $$("input[name=job]")) box.checked ? chosen.add(value) : chosen.delete(value);
    } else if (box.matches("[data-filters] select")) box.form.requestSubmit();
    showChosen();
  });
  addEventListener("formdata", (event) => {
    if (!event.target.matches("[data-filters]")) return;
    for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name);
  });
  setInterval(refreshList, 2000);
  addEventListener("visibilitychange", refreshList);
  addEventListener("pageshow", showChosen);
}

/* --- a job --- */

const job = $("[data-live]");
let stream = null;

class Stream {
  constructor(root) {
    this.url = root.dataset.live;
    this.place = root.dataset.place;
    this.label = $("[data-live-state]", root);
    this.words = JSON.parse(this.label.dataset.words);
    this.source = null;
    this.retry = 0;
    this.side = 0;
    this.open();
    addEventListener("visibilitychange", () => {
      clearTimeout(this.away);
      if (document.hidden) this.away = setTimeout(() => this.close(), 60000);
      else this.wake();
    });
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => { if (event.persisted) this.wake(); });
  }

  open() {
    this.source = new EventSource(`${this.url}?after=${this.place}`);
    this.source.onopen = () => { this.retry = 0; this.show("live"); };
    this.source.onerror = () => this.again();
    this.source.addEventListener("items", (event) => {
      this.place = event.lastEventId;
      follow(() => upsert(event.data, $("#conversation")));
      this.refreshSide();
    });
    this.source.addEventListener("panels", (event) => {
      this.place = event.lastEventId;
      follow(() => { upsert(event.data); return 0; });
      this.refreshSide();
    });
    this.source.addEventListener("end", () => { this.close(); this.show("ended"); this.refreshSide(0); });
  }

  /* Where it stopped, on this server or the next; the browser's own way would not tell when to log in again. */
  again() {
    this.close();
    this.show("reconnecting");
    this.retry = Math.min(this.retry + 1, 6);
    this.timer = setTimeout(async () => {
      let answer = null;
      try { answer = await fetch(`${this.url.slice(0, -4)}older?before=1-1`); } catch { /* still away */ }
      if (answer && (answer.status === 401 || answer.status === 404)) location.reload();
      else if (answer?.ok) this.open();
      else this.again();
    }, 400 * 1.7 ** this.retry);
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  wake() {
    if (!this.source && $("#head").dataset.ended === "no") this.again();
  }

  show(state) {
    this.label.className = `live ${state}`;
    if (this.label.textContent !== this.words[state]) this.label.textContent = this.words[state];
  }

  refreshSide(wait = 2000) {
    if (this.side && wait) return;
    clearTimeout(this.side);
    this.side = setTimeout(() => { this.side = 0; htmx.trigger("#side", "refresh"); }, wait);
  }
}

const atEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 140;
const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight });

/* Whoever reads the end stays there; whoever reads further up is only told. */
function follow(change) {
  const following = atEnd();
  const before = document.documentElement.scrollHeight;
  const added = change();
  if (following && document.documentElement.scrollHeight > before) toEnd();
  else if (added && !following) $("#jump").classList.add("news");
  if (added) $("#news").textContent = $("#conversation").lastElementChild?.textContent.trim().slice(0, 300) ?? "";
}

function showOlder(html) {
  const holder = parsed(html);
  const items = [...$("[data-older-items]", holder).children];
  const before = document.documentElement.scrollHeight;
  const first = $("#conversation").firstElementChild;
  for (const item of items) if (!document.getElementById(item.id)) $("#conversation").insertBefore(item, first);
  $("#older").replaceWith($("#older", holder));
  htmx.process($("#older"));
  times();
  scrollBy({ top: document.documentElement.scrollHeight - before });
}

if (job) {
  stream = new Stream(job);
  history.scrollRestoration = "manual";
  if (matchMedia("(min-width: 61rem)").matches && $("#conversation").scrollHeight > innerHeight) toEnd();
  const jump = $("#jump");
  const showJump = () => {
    const end = atEnd();
    jump.hidden = end;
    if (end) jump.classList.remove("news");
  };
  jump.onclick = toEnd;
  addEventListener("scroll", showJump, { passive: true });
  new ResizeObserver(showJump).observe(body);
}

const upload = $("[data-upload]");
if (upload) {
  const told = $("[data-told]", upload);
  $("input", upload).onchange = async (event) => {
    for (const file of event.target.files) {
      if (file.size > Number(upload.dataset.maxFile)) {
        toast(fill(upload.dataset.tooLarge, { name: file.name, limit: upload.dataset.maxFileText }), true);
        continue;
      }
      told.textContent = fill(upload.dataset.uploading, { name: file.name });
      const headers = { "X-CSRF-Token": body.dataset.csrf, "Content-Type": "application/octet-stream" };
      let answer = null;
      try {
        answer = await fetch(upload.dataset.upload + encodeURIComponent(file.name), { method: "PUT", headers, body: file });
      } catch { toast(body.dataset.offline, true); }
      told.textContent = answer?.ok ? upload.dataset.uploaded : "";
      if (answer && !answer.ok) tellProblem(await answer.text());
    }
    event.target.value = "";
    htmx.trigger("#side", "refresh");
  };
}

/* --- a new task --- */

const task = $("[data-new]");
const DRAFT = "sostenuto-new-task";

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function fieldsOf(form) {
  const fields = {};
  for (const [name, value] of new FormData(form)) {
    if (name !== "idempotency_key" && typeof value === "string") fields[name] = value;
  }
  return fields;
}

function newTaskAnswered(form, xhr, successful) {
  $("[data-progress]", form).hidden = true;
  $("[data-told]", form).textContent = "";
  for (const place of $$("p.error", form)) place.textContent = "";
  for (const field of $$("[aria-invalid]", form)) field.removeAttribute("aria-invalid");
  if (successful) { sessionStorage.removeItem(DRAFT); return; }
  if (xhr.status !== 422 || !xhr.getResponseHeader("Content-Type").startsWith("text/html")) {
    tellProblem(xhr.responseText);
    return;
  }
  for (const error of $$("[data-error]", parsed(xhr.responseText))) {
    const place = document.getElementById(error.id) ?? $("#error-form");
    place.textContent += error.textContent;
    const field = document.getElementById(`f-${error.dataset.error}`);
    field?.setAttribute("aria-invalid", "true");
    if (field) {
      const box = field.closest("details");
      if (box) box.open = true;
      field.focus();
    }
  }
}

function picker(form) {
  const input = $("#f-files");
  const list = $("[data-picked]", form);
  let files = [];
  const show = () => {
    const kept = new DataTransfer();
    for (const file of files) kept.items.add(file);
    input.files = kept.files;
    list.replaceChildren(...files.map(row));
  };
  const row = (file) => {
    const item = document.createElement("li");
    const name = document.createElement("span");
    name.textContent = file.name;
    name.dir = "auto";
    const size = document.createElement("small");
    size.textContent = new Intl.NumberFormat(language, { notation: "compact", style: "unit", unit: "byte", unitDisplay: "narrow" }).format(file.size);
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "plain";
    remove.textContent = "×";
    remove.setAttribute("aria-label", fill(form.dataset.remove, { name: file.name }));
    remove.onclick = () => { files = files.filter((other) => other !== file); show(); };
    item.append(name, size, remove);
    if (file.size > Number(form.dataset.maxFile)) {
      const error = document.createElement("p");
      error.className = "error";
      error.textContent = fill(form.dataset.tooLarge, { name: file.name, limit: form.dataset.maxFileText });
      item.append(error);
    }
    return item;
  };
  const add = (more) => {
    const fresh = [...more];
    files = [...files.filter((old) => !fresh.some((file) => file.name === old.name)), ...fresh];
    show();
  };
  input.onchange = () => add(input.files);
  const drop = $("[data-drop]", form);
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    add(event.dataTransfer.files);
  });
}

if (task) {
  if ($("#f-files")) picker(task);
  const draft = JSON.parse(sessionStorage.getItem(DRAFT) ?? "{}");
  for (const [name, value] of Object.entries(draft.fields ?? {})) {
    const field = task.elements.namedItem(name);
    if (field) field.value = value;
  }
  const keep = (changes) => sessionStorage.setItem(DRAFT, JSON.stringify(Object.assign(draft, changes)));
  task.addEventListener("input", () => keep({ fields: fieldsOf(task) }));
  task.addEventListener("htmx:configRequest", (event) => {
    // The same task sent again, also after a reload, is the same job; a changed one is another.
    const data = event.detail.formData;
    const files = $$("#f-files").flatMap((input) => [...input.files]).map((file) => [file.name, file.size, file.lastModified]);
    const sent = JSON.stringify([fieldsOf(task), files]);
    if (draft.sent !== sent) keep({ sent, key: draft.sent ? newKey() : data.get("idempotency_key") });
    data.set("idempotency_key", draft.key);
    const due = data.get("available_at");
    if (due) data.set("available_at", new Date(due).toISOString());
    $("[data-told]", task).textContent = task.dataset.sending;
  });
  task.addEventListener("htmx:xhr:progress", (event) => {
    const { loaded, total, lengthComputable } = event.detail;
    if (!lengthComputable || total < 200000) return;
    const percent = Math.floor((loaded / total) * 100);
    const bar = $("[data-progress]", task);
    bar.hidden = false;
    bar.value = percent;
    $("[data-told]", task).textContent = fill(task.dataset.sent, { percent });
  });
}

times();
setInterval(times, 20000);
