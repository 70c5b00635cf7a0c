"use strict";
/* The list: its rows as they change, and what is chosen in it. */

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
  if (await refresh($("#rows"), location.href)) showChosen();
}

answered("[data-bulk], [data-bulk] *", (form, xhr, successful) => {
  if (!successful) { tellProblem(xhr.responseText); return; }
  toast(parsed(xhr.responseText));
  refreshList();
});

answered("[data-reply]", (form, xhr, successful) => {
  if (!successful) tellProblem(xhr.responseText);
  refreshList();
});

if ($("#rows")) {
  for (const field of $$("[data-moment]")) {
    const moment = new Date(field.dataset.moment);
    if (!Number.isNaN(moment.getTime())) field.value = localField(moment);
  }
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
    for (const [name, value] of [...event.formData]) {
      if (!value) event.formData.delete(name);
      else if (event.target.elements[name].type === "datetime-local") event.formData.set(name, new Date(value).toISOString());
    }
  });
  setInterval(refreshList, 2000);
  addEventListener("sostenuto:back", refreshList);
  addEventListener("visibilitychange", refreshList);
  addEventListener("pageshow", showChosen);
}
