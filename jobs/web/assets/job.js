"use strict";
/* A job's page, all tabs of it: its stream, what is fetched on demand, and the files sent to it. */

const job = $("[data-live]");
let stream = null;

class Stream {
  constructor(root) {
    this.url = root.dataset.live;
    this.items = !("panelsOnly" in root.dataset);
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
    this.source = new EventSource(`${this.url}?after=${this.place}${this.items ? "" : "&items=false"}`);
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
    this.side = setTimeout(() => { this.side = 0; refreshParts(); }, wait);
  }
}

/* What is not sent by the stream is asked for when something has changed. */
function refreshParts() {
  for (const part of $$("[data-refresh]")) htmx.trigger(part, "refresh");
}

/* A lease is renewed without anything changing: its age is asked for while somebody looks. */
async function refreshHead() {
  if (document.hidden || !stream?.source || $("#head").dataset.state !== "running") return;
  try {
    const answer = await fetch(`${stream.url.slice(0, -4)}head`);
    if (answer.ok) upsert(await answer.text());
  } catch { /* the stream tells */ }
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

answered("[data-older]", (button, xhr, successful) => {
  if (successful) showOlder(xhr.responseText);
  else tellProblem(xhr.responseText);
});

/* A part of a page that is asked for as a whole: what stands in it now is taken from there. */
answered("[data-take]", (part, xhr, successful) => {
  const fresh = successful && $(part.dataset.take, parsed(xhr.responseText));
  if (!fresh) return;
  Idiomorph.morph(part, fresh, { morphStyle: "outerHTML" });
  htmx.process($(fresh.id ? `#${fresh.id}` : part.dataset.take));
  times();
});

addEventListener("click", async (event) => {
  const more = event.target.closest("[data-more]");
  if (!more) return;
  more.disabled = true;
  try {
    const answer = await fetch(more.dataset.more);
    if (answer.ok) more.replaceWith(parsed(await answer.text()));
    else tellProblem(await answer.text());
  } catch { toast(body.dataset.offline, true); }
  more.disabled = false;
  times();
});

answered("[data-job] [data-upsert]", (form, xhr, successful) => {
  if (!successful) { tellProblem(xhr.responseText); return; }
  upsert(xhr.responseText);
  if ("clear" in form.dataset) for (const field of $$("textarea", form)) field.value = "";
  if (form.id !== "side") stream?.wake();
});

if (job) {
  stream = new Stream(job);
  setInterval(refreshHead, 5000);
}

if (job && $("#conversation")) {
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
    refreshParts();
  };
}
