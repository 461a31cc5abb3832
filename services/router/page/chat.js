// The conversation on the screen: its messages, sending, stopping, editing and asking again.

import {Answer} from "./answer.js";
import {byId, element} from "./dom.js";
import {MarkdownView} from "./markdown.js";

export class Chat {
  constructor(store, settings) {
    this.store = store;
    this.settings = settings;
    this.log = byId("log");
    this.chat = store.chats[0] ?? store.newChat();
    this.running = null;  // {abort, view}
    this.model = "";

    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    byId("prompt").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    byId("stop").addEventListener("click", () => this.stop());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.running) this.stop();
    });
    byId("new-chat").addEventListener("click", () => {
      this.open(this.store.newChat());
      byId("prompt").focus();
    });
    this.open(this.chat);
  }

  open(chat) {
    this.stop();
    this.chat = chat;
    this.say("");
    this.showMessages();
    this.showChats();
  }

  showChats() {
    const items = this.store.chats.filter((chat) => chat.messages.length || chat === this.chat).map((chat) => {
      const title = chat.title || "New conversation";
      return element("li", {},
                     element("button", {class: "open", "aria-current": chat === this.chat ? "true" : undefined,
                                        onclick: () => this.open(chat)}, title),
                     element("button", {"aria-label": `Delete “${title}”`, title: "Delete",
                                        onclick: () => this.remove(chat)}, "✕"));
    });
    byId("chats").replaceChildren(...items);
  }

  remove(chat) {
    this.store.remove(chat);
    this.open(chat === this.chat ? this.store.chats[0] ?? this.store.newChat() : this.chat);
    byId("new-chat").focus();
  }

  save() {
    if (!this.store.save()) this.say("The browser has no room for this conversation: it is lost with the tab.");
  }

  say(text) {
    byId("status").textContent = text;
  }

  send() {
    const text = byId("prompt").value;
    if (this.running || !text.trim()) return;
    if (!this.ask([...this.chat.messages, {role: "user", content: text}])) return;
    byId("prompt").value = "";
  }

  // Replaces the conversation by `messages`, of which the last is the user's, and gets an answer. False: not sent.
  ask(messages) {
    let fields;
    try {
      fields = this.settings.fields();
    } catch (error) {
      this.say(error.message);
      byId("settings").open = true;
      return false;
    }
    this.stop();
    this.chat.messages = messages;
    this.chat.title ||= messages[0].content.trim().slice(0, 60);
    this.showMessages();
    this.showChats();
    this.answer(fields);
    return true;
  }

  request(fields) {
    const system = this.settings.systemPrompt();
    const messages = this.chat.messages.filter((message) => !message.error || message.content).map((message) => {
      const sent = {role: message.role, content: message.content};
      if (message.reasoning) sent.reasoning_content = message.reasoning;
      return sent;
    });
    if (system.trim()) messages.unshift({role: "system", content: system});
    return {...fields, model: this.model || undefined, messages};
  }

  async answer(fields) {
    const request = this.request(fields);
    const chat = this.chat;
    const view = new AnswerView(this.log);
    const abort = new AbortController();
    const running = {abort, view};
    this.running = running;
    this.showRunning();
    this.say("Waiting for the first token …");
    let drawn = false;
    const answer = new Answer(() => {
      if (drawn) return;
      drawn = true;  // once for each frame of the screen, however fast tokens come
      requestAnimationFrame(() => {
        drawn = false;
        if (this.running === running) this.show(answer, view);
      });
    });
    await answer.run(request, abort.signal);
    chat.messages.push({
      role: "assistant",
      content: answer.content,
      reasoning: answer.reasoning || undefined,
      calls: answer.calls.length ? answer.calls : undefined,
      figures: answer.figures(),
      finish: answer.finish,
      error: answer.error || undefined,
    });
    this.save();
    if (this.running !== running) return;
    this.running = null;
    this.showRunning();
    this.showProgress(null);
    this.showMessages();
    this.say(answer.error ? "The answer failed." : answer.finish === "stopped" ? "Stopped." : "The answer is complete.");
  }

  stop() {
    if (!this.running) return;
    this.running.abort.abort();
  }

  showRunning() {
    byId("send").hidden = this.running !== null;
    byId("stop").hidden = this.running === null;
  }

  show(answer, view) {
    const atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 40;
    view.update(answer);
    this.showProgress(answer.prefill);
    if (answer.first !== undefined) this.say(answer.figures());
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  showProgress(prefill) {
    const known = prefill !== null && prefill.total > 0;
    byId("progress").hidden = !known;
    if (!known) return;
    byId("progress-bar").value = prefill.done / prefill.total;
    byId("progress-text").textContent = `Reading the prompt: ${prefill.done} of ${prefill.total} tokens`;
  }

  showMessages() {
    this.log.replaceChildren(...this.chat.messages.map((message, i) => this.messageView(message, i)));
    this.log.scrollTop = this.log.scrollHeight;
  }

  messageView(message, i) {
    return message.role === "user" ? this.userView(message, i) : this.assistantView(message, i);
  }

  userView(message, i) {
    const edit = element("button", {onclick: () => this.edit(box, message, i)}, "Edit");
    const again = element("button", {onclick: () => this.ask(this.chat.messages.slice(0, i + 1))}, "Resend");
    const box = element("article", {class: "message user", "aria-label": "You"}, element("h2", {}, "You"),
                        element("div", {class: "plain"}, message.content),
                        element("div", {class: "actions"}, edit, again));
    return box;
  }

  edit(box, message, i) {
    const text = element("textarea", {rows: 4, "aria-label": "Edit your message"});
    text.value = message.content;
    const send = () => {
      if (text.value.trim()) this.ask([...this.chat.messages.slice(0, i), {role: "user", content: text.value}]);
    };
    const cancel = () => {
      const view = this.userView(message, i);
      box.replaceWith(view);
      view.querySelector("button").focus();
    };
    text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") cancel();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
    });
    box.replaceChildren(element("h2", {}, "You"), text,
                        element("div", {class: "actions"}, element("button", {onclick: send}, "Send"),
                                element("button", {onclick: cancel}, "Cancel")));
    text.focus();
  }

  assistantView(message, i) {
    const view = new AnswerView(null);
    view.update(message);
    const copy = element("button", {onclick: () => this.copy(message.content)}, "Copy");
    const again = element("button", {onclick: () => this.ask(this.chat.messages.slice(0, i))}, "Answer again");
    const notes = {length: "cut off by the limit of tokens", stopped: "stopped"}[message.finish];
    const figures = [notes, message.figures].filter(Boolean).join(" · ");
    view.box.append(element("div", {class: "actions"}, copy, again, element("span", {class: "figures"}, figures)));
    view.box.removeAttribute("aria-busy");
    return view.box;
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      this.say("Copied.");
    } catch {
      this.say("The browser does not allow this page to copy.");
    }
  }
}

// The box of one answer. `parent`: where it grows; null: nowhere yet.
class AnswerView {
  constructor(parent) {
    this.thought = element("div", {class: "markdown"});
    this.thoughtBox = element("details", {class: "thought", hidden: true}, element("summary", {}, "Thinking"), this.thought);
    this.content = element("div", {class: "markdown"});
    this.calls = element("div");
    this.error = element("p", {class: "error", hidden: true});
    this.box = element("article", {class: "message assistant", "aria-label": "Answer", "aria-busy": "true"},
                       element("h2", {}, "Answer"), this.thoughtBox, this.content, this.calls, this.error);
    this.contentView = new MarkdownView(this.content);
    this.thoughtView = new MarkdownView(this.thought);
    parent?.append(this.box);
  }

  update({content, reasoning, calls, error}) {
    if (reasoning) {
      this.thoughtBox.hidden = false;
      this.thoughtView.update(reasoning);
    }
    this.contentView.update(content);
    this.calls.replaceChildren(...(calls ?? []).map((call) => element("pre", {tabindex: "0"}, `${call.name}(${call.arguments})`)));
    this.error.hidden = !error;
    this.error.textContent = error ?? "";
  }
}
