// The search page. What is shown is a function of the address, save for an uploaded image, which is kept
// in memory: so Back, Forward, reload and bookmarks do what they should.
import { element, number, imageButton } from "./parts.js";
import { showClass } from "./variation.js";

const $ = (id) => document.getElementById(id);
const uploads = new Map(); // what the address calls upload=N
let facts = {};
let running = null; // the request whose answer is waited for
let suggesting = null;

class Trouble extends Error {}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("The server does not answer. Is it still running?");
  }
  const answer = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  if (response.ok) return answer;
  if (response.status === 503) throw new Trouble("The server is busy. Try again in a moment.");
  throw new Trouble(answer.error || `The server answered ${response.status}.`);
}

function state() {
  const given = new URLSearchParams(location.search);
  return {
    id: given.get("id"), upload: given.get("upload"), only: given.get("only") || "",
    class: given.get("class"), top: given.get("top") || "24",
  };
}

function go(changes, { replace = false } = {}) {
  const next = Object.entries({ ...state(), ...changes }).filter(([key, value]) => value && !(key === "top" && value === "24"));
  const address = next.length ? `?${new URLSearchParams(next)}` : location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  return show();
}

async function show() {
  const now = state();
  running?.abort();
  const mine = (running = new AbortController());
  $("only").value = now.only;
  $("top").value = now.top;
  showQuery(now);
  tell("");
  const waiting = setTimeout(() => $("grid").classList.add("busy"), 60);
  try {
    const panel = now.class !== null ? ask(`/api/class?${new URLSearchParams({ label: now.class })}`, { signal: mine.signal }) : null;
    const found = await search(now, mine.signal);
    showClass($("variation"), panel && (await panel), { search: (id) => go({ id, upload: null, class: null, only: "" }), open: openClass, only: (name) => go({ only: name, class: null }), close: () => go({ class: null }) });
    showFound(now, found);
  } catch (error) {
    if (error.name === "AbortError") return;
    $("grid").replaceChildren();
    $("heading").textContent = "Nothing to show";
    $("status").textContent = "";
    showClass($("variation"), null, {});
    if (error instanceof Trouble) tell(error.message);
    else throw error;
  } finally {
    clearTimeout(waiting);
    if (mine === running) $("grid").classList.remove("busy");
  }
}

function search(now, signal) {
  const wanted = { top: now.top };
  if (now.only) wanted.label = now.only;
  const file = uploads.get(now.upload);
  if (file) {
    const body = new FormData();
    body.append("image", file);
    for (const [key, value] of Object.entries(wanted)) body.append(key, value);
    return ask("/api/search", { method: "POST", body, signal });
  }
  if (now.id !== null) return ask(`/api/search?${new URLSearchParams({ id: now.id, ...wanted })}`, { signal });
  return ask(`/api/gallery?${new URLSearchParams({ limit: now.top, ...(now.only && { label: now.only }) })}`, { signal });
}

function showQuery(now) {
  const file = uploads.get(now.upload);
  const preview = $("preview");
  if (preview.src.startsWith("blob:")) URL.revokeObjectURL(preview.src);
  const asked = Boolean(file) || now.id !== null;
  preview.hidden = !asked;
  $("invite").hidden = asked;
  $("source").hidden = !asked;
  $("drop").classList.toggle("filled", asked);
  $("guess").hidden = true;
  $("caption").textContent = "";
  if (file) {
    preview.src = URL.createObjectURL(file);
    preview.alt = `Your image ${file.name}`;
    $("caption").append(file.name || "Pasted image", element("small", {}, "your image"));
  } else {
    preview.hidden = true;
    preview.removeAttribute("src");
  }
}

function showFound(now, found) {
  if (found.query) {
    $("caption").replaceChildren(classButton(found.query.label), element("small", {}, found.query.name));
    $("preview").alt = "The gallery image searched from";
    if (found.query.image) $("preview").src = `${found.query.image}&side=640`;
    $("preview").hidden = !found.query.image;
  }
  const asked = found.milliseconds !== undefined;
  const where = now.only ? ` in ${now.only}` : "";
  $("heading").textContent = asked ? `Most similar${where}` : now.only ? now.only : "Start from any image";
  const count = found.results.length;
  const words = `${number(count)} of ${number(found.total)} images`;
  $("status").textContent = asked ? `${words}, ${found.milliseconds.toFixed(0)} ms` : words;
  showGuess(found.likely);
  const own = found.query?.label;
  $("grid").replaceChildren(...found.results.map((one) => tile(one, own)));
}

function showGuess(likely) {
  $("guess").hidden = !likely;
  if (!likely) return;
  const [first, ...others] = likely.classes.map((one) => classButton(one.label));
  const lead = likely.known === false ? "Probably none of these classes; nearest is " : "Most likely ";
  const rest = others.length ? [" else ", ...others.flatMap((one, place) => (place ? [" or ", one] : [one]))] : [];
  $("guess").replaceChildren(lead, first, ...rest);
}

function classButton(label) {
  const parts = label.split(/(?<=[_/-])/).flatMap((part, place) => (place ? [element("wbr", {}), part] : [part]));
  const button = element("button", { type: "button", class: "label", title: `About the class ${label}` }, ...parts);
  button.addEventListener("click", () => openClass(label));
  return button;
}

function openClass(label) {
  go({ class: label }).then(() => $("variation").scrollIntoView({ block: "nearest" }));
}

function tile(one, own) {
  const image = imageButton(one, `Search from ${one.name}`);
  image.addEventListener("click", () => go({ id: String(one.id), upload: null, class: null }).then(() => scrollTo({ top: 0 })));
  const about = element("div", { class: "about" }, classButton(one.label));
  if (one.similarity !== undefined && one.similarity !== null) {
    const meter = element("span", { class: "meter", "aria-hidden": "true" }, element("i", {}));
    meter.firstChild.style.setProperty("--share", Math.max(0, one.similarity));
    about.append(meter, element("span", { class: "likeness", title: "cosine similarity" }, one.similarity.toFixed(2)));
  }
  return element("li", { class: one.label === own ? "tile same" : "tile" }, image, about);
}

function take(file) {
  if (!file) return;
  if (!file.type.startsWith("image/")) return tell(`${file.name || "That"} is not an image.`);
  if (facts.limits && file.size > facts.limits.upload_bytes)
    return tell(`${file.name || "The image"} has ${(file.size / 2 ** 20).toFixed(0)} MB; at most ${(facts.limits.upload_bytes / 2 ** 20).toFixed(0)} MB are taken.`);
  const key = String(uploads.size + 1);
  uploads.set(key, file);
  go({ upload: key, id: null, class: null });
}

function tell(message) {
  $("trouble").textContent = message;
  $("trouble").hidden = !message;
}

async function suggest() {
  suggesting?.abort();
  suggesting = new AbortController();
  try {
    const { classes } = await ask(`/api/classes?${new URLSearchParams({ find: $("only").value.trim(), limit: 30 })}`, { signal: suggesting.signal });
    $("names").replaceChildren(...classes.map((one) => element("option", { value: one.label }, `${one.images} images`)));
    return classes;
  } catch {
    return [];
  }
}

async function filter() {
  const typed = $("only").value.trim();
  if (typed === state().only) return;
  if (!typed) return void go({ only: "", class: null });
  const classes = await suggest();
  const exact = classes.find((one) => one.label === typed) || classes.find((one) => one.label.toLowerCase() === typed.toLowerCase());
  const chosen = exact || (classes.length === 1 && classes[0]);
  if (chosen) go({ only: chosen.label, class: chosen.label });
  else tell(classes.length ? `Several classes contain “${typed}”: choose one of the list.` : `No class contains “${typed}”.`);
}

function move(key) {
  const tiles = [...document.querySelectorAll("#grid .image")];
  if (!tiles.length) return;
  const at = tiles.indexOf(document.activeElement);
  const columns = getComputedStyle($("grid")).gridTemplateColumns.split(" ").length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[key];
  const next = at < 0 ? 0 : at + step;
  if (next >= 0 && next < tiles.length) tiles[next].focus();
}

$("file").addEventListener("change", (event) => { take(event.target.files[0]); event.target.value = ""; });
$("clear").addEventListener("click", () => go({ id: null, upload: null, class: null, only: "" }));
$("controls").addEventListener("submit", (event) => { event.preventDefault(); filter(); });
$("only").addEventListener("input", (event) => { suggest(); if (!event.target.value || event.inputType === "insertReplacementText" || !event.inputType) filter(); });
$("only").addEventListener("change", filter);
$("only").addEventListener("focus", suggest, { once: true });
$("top").addEventListener("change", (event) => go({ top: event.target.value }));
addEventListener("popstate", show);
addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files || [])].find((one) => one.type.startsWith("image/"));
  if (file) take(file);
});
for (const kind of ["dragover", "dragenter"])
  addEventListener(kind, (event) => { if (event.dataTransfer?.types.includes("Files")) { event.preventDefault(); $("drop").classList.add("over"); } });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").classList.remove("over"); });
addEventListener("drop", (event) => { event.preventDefault(); $("drop").classList.remove("over"); take(event.dataTransfer?.files[0]); });
addEventListener("pointerdown", () => document.body.classList.remove("keyboard"));
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input[type=search], select");
  if (event.key === "Escape") return typing ? event.target.blur() : void (state().class !== null ? go({ class: null }) : go({ id: null, upload: null, only: "" }));
  if (typing) return;
  document.body.classList.add("keyboard");
  if (event.key.startsWith("Arrow")) { event.preventDefault(); move(event.key); }
  else if (event.key === "/") { event.preventDefault(); $("only").focus(); }
  else if (event.key === "o" || event.key === "O") { event.preventDefault(); $("file").click(); }
  else if ((event.key === "c" || event.key === "C") && document.activeElement.dataset.label) openClass(document.activeElement.dataset.label);
});

ask("/api/health").then((answer) => {
  facts = answer;
  $("run").textContent = answer.run;
  document.title = `${answer.run} · search`;
  $("facts").textContent = `${number(answer.gallery.images)} images · ${number(answer.gallery.classes)} classes · ${answer.model}`;
  if (!answer.takes_images) {
    $("drop").hidden = true;
    document.querySelector(".query").classList.add("bare");
  }
}).catch(() => {});
show();
