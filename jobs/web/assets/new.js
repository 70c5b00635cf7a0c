"use strict";
/* A new task: its files, its draft, and what is wrong with it. */

const task = $("[data-new]");
const DRAFT = "sostenuto-new-task"; // forgotten when the task is sent, thrown away, or its writer logs out

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

answered("[data-new]", (form, xhr, successful) => {
  $("[data-progress]", form).hidden = true;
  $("[data-told]", form).textContent = "";
  for (const place of $$("p.error", form)) place.textContent = "";
  for (const field of $$("[aria-invalid]", form)) field.removeAttribute("aria-invalid");
  if (successful) { localStorage.removeItem(DRAFT); return; }
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
});

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

/* The chosen piece as a picture; asked for once. */
const graphs = new Map();
async function showGraph() {
  const place = $("[data-graph]", task);
  const name = task.elements.namedItem("piece").value;
  if (name && !graphs.has(name)) {
    const answer = await ask(`/new/graph/${encodeURIComponent(name)}`);
    if (answer?.ok) graphs.set(name, await answer.text());
  }
  if (name !== task.elements.namedItem("piece").value) return; // another one was chosen meanwhile
  place.replaceChildren(parsed(graphs.get(name) ?? ""));
  place.hidden = !graphs.has(name);
}

if (task) {
  if ($("#f-files")) picker(task);
  const draft = JSON.parse(localStorage.getItem(DRAFT) ?? "{}");
  const asked = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(draft.fields ?? {})) {
    const field = task.elements.namedItem(name);
    if (field && !asked.has(name)) field.value = value;
  }
  if (draft.fields?.instruction) $("[data-draft]", task).hidden = false;
  $("[data-discard]", task).onclick = () => { localStorage.removeItem(DRAFT); location.reload(); };
  const keep = (changes) => localStorage.setItem(DRAFT, JSON.stringify(Object.assign(draft, changes)));
  task.addEventListener("change", (event) => { if (event.target.name === "piece") showGraph(); });
  showGraph();
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
