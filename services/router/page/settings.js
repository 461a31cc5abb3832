// The settings form, and the fields of a request that it makes.

import {apiKey, setApiKey} from "./api.js";
import {byId} from "./dom.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const TEXTS = ["system", "thinking", "template"];

export class Settings {
  constructor(store) {
    this.store = store;
    for (const name of [...NUMBERS, ...TEXTS]) {
      const input = byId(`set-${name}`);
      input.value = store.settings[name] ?? "";
      input.addEventListener("input", () => {
        store.settings[name] = input.value;
        store.saveSettings();
      });
    }
    byId("set-key").value = apiKey();
    byId("set-key").addEventListener("change", (event) => setApiKey(event.target.value.trim()));
    byId("reset-settings").addEventListener("click", () => this.reset());
  }

  reset() {
    for (const name of [...NUMBERS, ...TEXTS]) {
      byId(`set-${name}`).value = "";
      delete this.store.settings[name];
    }
    this.store.saveSettings();
  }

  // Throws an Error with words for the user. A field that is empty is not sent: the server has its own default.
  fields() {
    const settings = this.store.settings;
    const fields = {};
    for (const name of NUMBERS) {
      const input = byId(`set-${name}`);
      if (!input.checkValidity()) throw new Error(`${input.parentNode.firstChild.textContent}: ${input.validationMessage}`);
      if (settings[name]) fields[name] = Number(settings[name]);
    }
    let flags = {};
    if (settings.template) {
      try {
        flags = JSON.parse(settings.template);
      } catch {
        flags = null;
      }
      if (flags === null || typeof flags !== "object" || Array.isArray(flags)) {
        throw new Error("Variables of the chat template: write one JSON object, such as {\"reasoning_effort\": \"high\"}");
      }
    }
    // Templates call it one or the other.
    const thinking = {on: true, off: false}[settings.thinking];
    if (thinking !== undefined) flags = {enable_thinking: thinking, thinking, ...flags};
    if (Object.keys(flags).length) fields.chat_template_kwargs = flags;
    return fields;
  }

  systemPrompt() {
    return this.store.settings.system ?? "";
  }
}
