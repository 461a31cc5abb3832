// What the browser keeps: conversations and settings.

const CHATS = "moestro.chats";
const SETTINGS = "moestro.settings";

function read(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? fallback;
  } catch {
    return fallback;  // of another version, or damaged
  }
}

// False: the browser has no room, or keeps nothing.
function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export class Store {
  constructor() {
    const chats = read(CHATS, []);
    this.chats = Array.isArray(chats) ? chats.filter((chat) => Array.isArray(chat?.messages)) : [];
    this.settings = {...read(SETTINGS, {})};
  }

  newChat() {
    const chat = {id: crypto.getRandomValues(new Uint32Array(2)).join("-"), title: "", messages: []};
    this.chats.unshift(chat);
    return chat;
  }

  remove(chat) {
    this.chats = this.chats.filter((other) => other !== chat);
    return this.save();
  }

  // When there is no more room, the oldest conversations go. Conversations without a message are not worth keeping.
  save() {
    const kept = this.chats.filter((chat) => chat.messages.length > 0);
    while (!write(CHATS, kept)) {
      if (kept.length <= 1) return false;
      kept.pop();
    }
    return true;
  }

  saveSettings() {
    return write(SETTINGS, this.settings);
  }
}
