// The search page. What is shown is a function of the URL, except for an uploaded image, which is kept in memory:
// so Back, Forward, reload and bookmarks work as expected.
import { element, formatNumber, imageButton, login, request, UserError } from "./elements.js";
import { showClass } from "./class_panel.js";

const $ = (id) => document.getElementById(id);
const uploads = new Map(); // files by the number that the URL calls upload=N
let server = {}; // what /api/health says
let currentRequest = null;
let suggestionRequest = null;

function state() {
  const query = new URLSearchParams(location.search);
  return {
    id: query.get("id"), upload: query.get("upload"), only: query.get("only") || "",
    class: query.get("class"), top: query.get("top") || "24",
  };
}

function go(changes, { replace = false } = {}) {
  const parameters = Object.entries({ ...state(), ...changes }).filter(([key, value]) => value && !(key === "top" && value === "24"));
  const url = parameters.length ? `?${new URLSearchParams(parameters)}` : location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  return show();
}

async function show() {
  const now = state();
  currentRequest?.abort();
  const controller = (currentRequest = new AbortController());
  $("only").value = now.only;
  $("top").value = now.top;
  showQuery(now);
  showError("");
  const dimming = setTimeout(() => $("grid").classList.add("busy"), 60);
  try {
    const description = now.class !== null ? request(`/api/class?${new URLSearchParams({ label: now.class })}`, { signal: controller.signal }) : null;
    const result = await search(now, controller.signal);
    showClass($("class-panel"), description && (await description), { search: (id) => go({ id, upload: null, class: null, only: "" }), open: openClass, only: (name) => go({ only: name, class: null }), close: () => go({ class: null }) });
    showResult(now, result);
  } catch (error) {
    if (error.name === "AbortError") return;
    $("grid").replaceChildren();
    $("heading").textContent = "Nothing to show";
    $("status").textContent = "";
    showClass($("class-panel"), null, {});
    if (error instanceof UserError) showError(error.message);
    else throw error;
  } finally {
    clearTimeout(dimming);
    if (controller === currentRequest) $("grid").classList.remove("busy");
  }
}

function search(now, signal) {
  const parameters = { top: now.top };
  if (now.only) parameters.label = now.only;
  const file = uploads.get(now.upload);
  if (file) {
    const body = new FormData();
    body.append("image", file);
    for (const [key, value] of Object.entries(parameters)) body.append(key, value);
    return request("/api/search", { method: "POST", body, signal });
  }
  if (now.id !== null) return request(`/api/search?${new URLSearchParams({ id: now.id, ...parameters })}`, { signal });
  return request(`/api/gallery?${new URLSearchParams({ limit: now.top, ...(now.only && { label: now.only }) })}`, { signal });
}

function showQuery(now) {
  const file = uploads.get(now.upload);
  const preview = $("preview");
  if (preview.src.startsWith("blob:")) URL.revokeObjectURL(preview.src);
  const hasQuery = Boolean(file) || now.id !== null;
  preview.hidden = !hasQuery;
  $("invite").hidden = hasQuery;
  $("source").hidden = !hasQuery;
  $("drop").classList.toggle("filled", hasQuery);
  $("classification").hidden = true;
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

function showResult(now, result) {
  if (result.query) {
    $("caption").replaceChildren(classButton(result.query.label), element("small", {}, result.query.name));
    $("preview").alt = "The gallery image searched from";
    if (result.query.image) $("preview").src = `${result.query.image}&side=640`;
    $("preview").hidden = !result.query.image;
  }
  const isSearch = result.milliseconds !== undefined;
  const where = now.only ? ` in ${now.only}` : "";
  $("heading").textContent = isSearch ? `Most similar${where}` : now.only ? now.only : "Start from any image";
  const count = result.results.length;
  const size = `${formatNumber(count)} of ${formatNumber(result.total)} images`;
  $("status").textContent = isSearch ? `${size}, ${result.milliseconds.toFixed(0)} ms` : size;
  showClassification(result.likely);
  const queryLabel = result.query?.label;
  $("grid").replaceChildren(...result.results.map((item) => tile(item, queryLabel)));
}

function showClassification(likely) {
  $("classification").hidden = !likely;
  if (!likely) return;
  const [first, ...others] = likely.classes.map((candidate) => classButton(candidate.label));
  const lead = likely.known === false ? "Probably none of these classes; nearest is " : "Most likely ";
  const rest = others.length ? [" else ", ...others.flatMap((button, position) => (position ? [" or ", button] : [button]))] : [];
  $("classification").replaceChildren(lead, first, ...rest);
}

function classButton(label) {
  const parts = label.split(/(?<=[_./-])/).flatMap((part, position) => (position ? [element("wbr", {}), part] : [part])); // may wrap here
  const button = element("button", { type: "button", class: "label", title: `About the class ${label}` }, ...parts);
  button.addEventListener("click", () => openClass(label));
  return button;
}

function openClass(label) {
  go({ class: label }).then(() => $("class-panel").scrollIntoView({ block: "nearest" }));
}

function tile(item, queryLabel) {
  const image = imageButton(item, `Search from ${item.name}`);
  image.addEventListener("click", () => go({ id: String(item.id), upload: null, class: null }).then(() => scrollTo({ top: 0 })));
  const about = element("div", { class: "about" }, classButton(item.label));
  if (item.similarity !== undefined && item.similarity !== null) {
    const meter = element("span", { class: "meter", "aria-hidden": "true" }, element("i", {}));
    meter.firstChild.style.setProperty("--share", Math.max(0, item.similarity));
    about.append(meter, element("span", { class: "similarity", title: "cosine similarity" }, item.similarity.toFixed(2)));
  }
  return element("li", { class: item.label === queryLabel ? "tile same" : "tile" }, image, about);
}

function take(file) {
  if (!file) return;
  if (!file.type.startsWith("image/")) return showError(`${file.name || "That"} is not an image.`);
  if (server.limits && file.size > server.limits.upload_bytes)
    return showError(`${file.name || "The image"} has ${(file.size / 2 ** 20).toFixed(0)} MB; at most ${(server.limits.upload_bytes / 2 ** 20).toFixed(0)} MB are accepted.`);
  const key = String(uploads.size + 1);
  uploads.set(key, file);
  go({ upload: key, id: null, class: null });
}

function showError(message) {
  $("error").textContent = message;
  $("error").hidden = !message;
}

async function suggest() {
  suggestionRequest?.abort();
  suggestionRequest = new AbortController();
  try {
    const { classes } = await request(`/api/classes?${new URLSearchParams({ find: $("only").value.trim(), limit: 30 })}`, { signal: suggestionRequest.signal });
    $("names").replaceChildren(...classes.map((entry) => element("option", { value: entry.label }, `${entry.images} images`)));
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
  const exact = classes.find((entry) => entry.label === typed) || classes.find((entry) => entry.label.toLowerCase() === typed.toLowerCase());
  const chosen = exact || (classes.length === 1 && classes[0]);
  if (chosen) go({ only: chosen.label, class: chosen.label });
  else showError(classes.length ? `Several classes contain “${typed}”: choose one from the list.` : `No class contains “${typed}”.`);
}

function move(key) {
  const tiles = [...document.querySelectorAll("#grid .image")];
  if (!tiles.length) return;
  const current = tiles.indexOf(document.activeElement);
  const columns = getComputedStyle($("grid")).gridTemplateColumns.split(" ").length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[key];
  const next = current < 0 ? 0 : current + step;
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
  const file = [...(event.clipboardData?.files || [])].find((file) => file.type.startsWith("image/"));
  if (file) take(file);
});
for (const type of ["dragover", "dragenter"])
  addEventListener(type, (event) => { if (event.dataTransfer?.types.includes("Files")) { event.preventDefault(); $("drop").classList.add("over"); } });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").classList.remove("over"); });
addEventListener("drop", (event) => { event.preventDefault(); $("drop").classList.remove("over"); take(event.dataTransfer?.files[0]); });
addEventListener("pointerdown", () => document.body.classList.remove("keyboard"));
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input[type=search], select");
  if (event.key === "Escape") return typing ? event.target.blur() : void (state().class !== null ? go({ class: null }) : go({ id: null, upload: null, only: "" }));
  if (typing) return;
  document.body.classList.add("keyboard");
  if (event.key.startsWith("Arrow")) { event.preventDefault(); move(event.key); }
  else if (event.key === "/") { event.preventDefault(); $("only").focus(); }
  else if (event.key === "o" || event.key === "O") { event.preventDefault(); $("file").click(); }
  else if ((event.key === "c" || event.key === "C") && document.activeElement.dataset.label) openClass(document.activeElement.dataset.label);
});

async function describeServer() {
  let answer = await request("/api/health");
  if (!answer.gallery) { // without the token, it only says that it is alive
    await login();
    answer = await request("/api/health");
  }
  server = answer;
  $("run").textContent = answer.run;
  document.title = `${answer.run} · search`;
  $("facts").textContent = `${formatNumber(answer.gallery.images)} images · ${formatNumber(answer.gallery.classes)} classes · ${answer.model}`;
  if (!answer.takes_images) {
    $("drop").hidden = true;
    document.querySelector(".query").classList.add("bare");
  }
}

describeServer().catch(() => {});
show();
