"use strict";
/* What waits for a person: the mark in the header, and a notification of the browser's for each new one, if wanted.
   One question is told once, in however many tabs and pages; the browser replaces what has the same tag. */

const WANTED = "sostenuto-notify";
const TOLD = "sostenuto-told";
const mark = $("#attention");
const bell = $("#notify");
const usual = document.title;
const canNotify = "Notification" in window && isSecureContext;
const notifying = () => canNotify && Notification.permission === "granted" && localStorage.getItem(WANTED) === "yes";
let seen = "";
let asking = false;

async function attend() {
  if (!mark || asking) return;
  asking = true;
  const answer = await ask(`/attention?seen=${seen}`);
  asking = false;
  if (answer?.status !== 200) return;
  const news = await answer.json();
  seen = news.mark;
  mark.hidden = news.count === 0;
  $("b", mark).textContent = news.count;
  document.title = (news.count ? `(${news.count}) ` : "") + usual;
  tell(news.jobs);
}

function tell(jobs) {
  if (!notifying()) return;
  const told = JSON.parse(localStorage.getItem(TOLD) ?? "[]");
  for (const job of jobs) {
    if (told.includes(job.key) || (!document.hidden && location.pathname.startsWith(`/jobs/${job.id}`))) continue;
    const shown = new Notification(job.title, { body: job.text, tag: job.key });
    shown.onclick = () => { window.focus(); location.assign(`/jobs/${job.id}`); shown.close(); };
  }
  remember(jobs);
}

const remember = (jobs) => localStorage.setItem(TOLD, JSON.stringify(jobs.map((job) => job.key)));

function showBell() {
  bell.hidden = false;
  const on = notifying();
  bell.setAttribute("aria-pressed", String(on));
  bell.title = on ? bell.dataset.on : bell.dataset.off;
}

if (bell && canNotify) {
  showBell();
  bell.onclick = async () => {
    if (notifying()) localStorage.removeItem(WANTED);
    else if ((await Notification.requestPermission()) === "granted") {
      localStorage.setItem(WANTED, "yes");
      const answer = await ask("/attention");
      if (answer?.ok) remember((await answer.json()).jobs);
      toast(bell.dataset.done);
    } else toast(bell.dataset.denied, true);
    showBell();
  };
}

/* Hidden tabs ask too, else nobody could be told; rarer, and browsers make it rarer still. */
function attendAgain() {
  setTimeout(() => { attend(); attendAgain(); }, document.hidden ? 10000 : 4000);
}
attend();
attendAgain();
addEventListener("visibilitychange", attend);
addEventListener("sostenuto:back", attend);
