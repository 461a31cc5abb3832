// Puts the page together: tabs, theme, the state of the server.

import {getHealth, getJson} from "./api.js";
import {Chat} from "./chat.js";
import {Dashboard} from "./dashboard.js";
import {byId, element} from "./dom.js";
import {Settings} from "./settings.js";
import {Store} from "./store.js";

const store = new Store();
const chat = new Chat(store, new Settings(store));

// Theme -------------------------------------------------------------------------------------------------------------

function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

const theme = byId("theme");
theme.value = store.settings.theme ?? "system";
applyTheme(theme.value);
theme.addEventListener("change", () => {
  store.settings.theme = theme.value;
  store.saveSettings();
  applyTheme(theme.value);
});

// Server ------------------------------------------------------------------------------------------------------------

let roles = [];    // {name, up}
let health = null;  // {up, words}

function showState() {
  const items = [health, ...roles].filter(Boolean).map(
      ({name, up, words}) => element("li", {class: up ? "up" : "down"}, `${name} ${words ?? (up ? "up" : "down")}`));
  const list = byId("roles");
  const text = items.map((item) => item.textContent).join();
  if (list.dataset.text === text) return;  // A reader is not told what has not changed.
  list.dataset.text = text;
  list.replaceChildren(...items);
}

function takeMetrics(metrics) {
  roles = (metrics?.get("moestro_role_up") ?? []).map(({labels, value}) => ({name: labels.peer ?? labels.role, up: value > 0}));
  showState();
}

async function checkHealth() {
  try {
    const {ok, body} = await getHealth();
    const progress = typeof body.progress === "number" ? ` (${Math.floor(100 * body.progress)} %)` : "";
    health = {name: "router", up: ok, words: ok ? "serves" : `${body.status ?? "does not serve"}${progress}`};
    if (ok && !chat.model) await showModel();
  } catch (error) {
    health = {name: "router", up: false, words: "does not answer"};
    chat.model = "";
  }
  showState();
  setTimeout(checkHealth, 5000);
}

async function showModel() {
  const {data: [model]} = await getJson("v1/models");
  chat.model = model.id;
  byId("model").textContent = `${model.id} · ${model.max_model_len.toLocaleString("en")} tokens of context`;
}

// Tabs --------------------------------------------------------------------------------------------------------------

const dashboard = new Dashboard(takeMetrics);
const tabs = [...document.querySelectorAll("[role=tab]")];

function select(tab) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    byId(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  dashboard.show(tab.id === "tab-dashboard");
}

for (const [i, tab] of tabs.entries()) {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const next = tabs[(i + step + tabs.length) % tabs.length];
    select(next);
    next.focus();
  });
}

checkHealth();
byId("prompt").focus();
