// Markdown that grows, as DOM nodes. Nothing is ever parsed as HTML: tags in the text stay text, links lead to http,
// https and mailto only, and images are links, because a page that loads none cannot be made to tell where it is.

import {element} from "./dom.js";

// Longer lines are text: these rules take the square of a line's length, and a model can write one that freezes the page.
const MAX_LINE = 1000;
const ofLines = (rule) => ({
  exec: (line) => line.length <= MAX_LINE ? rule.exec(line) : null,
  test: (line) => line.length <= MAX_LINE && rule.test(line),
});
const FENCE = ofLines(/^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/);
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = ofLines(/^ {0,3}([-*_])(\s*\1){2,}\s*$/);
const HEADING = ofLines(/^ {0,3}(#{1,6})\s+(.*?)\s*#*$/);
const TABLE_RULE = ofLines(/^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/);
// Deeper quotes and lists are shown as their text.
const MAX_DEPTH = 8;

// Shows a text in `parent`. Only the blocks that changed are made anew, so a growing answer costs no more than its last
// block.
export class MarkdownView {
  constructor(parent) {
    this.parent = parent;
    this.blocks = [];
  }

  update(text) {
    const blocks = splitBlocks(text.split("\n"));
    for (const [i, block] of blocks.entries()) {
      const source = block.join("\n");
      if (this.blocks[i] === source) continue;
      const made = element("div", {}, ...renderBlock(block, 0));
      if (i < this.blocks.length) this.parent.children[i].replaceWith(made);
      else this.parent.append(made);
      this.blocks[i] = source;
    }
    while (this.blocks.length > blocks.length) {
      this.blocks.pop();
      this.parent.lastChild.remove();
    }
  }
}

// Lists of lines: a fence with what is in it, a list with its items, or lines up to a blank one.
function splitBlocks(lines) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (!lines[i].trim()) {
      ++i;
      continue;
    }
    const begin = i;
    const fence = FENCE.exec(lines[i]);
    if (fence) {
      for (++i; i < lines.length && !closes(lines[i], fence[1]); ++i);
      ++i;
    } else if (HEADING.test(lines[i]) || (RULE.test(lines[i]) && !ITEM.test(lines[i]))) {
      ++i;
    } else if (ITEM.test(lines[i])) {
      i = endOfList(lines, i);
    } else {
      for (++i; i < lines.length && lines[i].trim() && !interrupts(lines[i]); ++i);
    }
    blocks.push(lines.slice(begin, i));
  }
  return blocks;
}

const closes = (line, fence) => line.trim().startsWith(fence) && !line.trim().slice(fence.length).trim();
const interrupts = (line) => FENCE.test(line) || HEADING.test(line) || ITEM.test(line);

// A list goes on over blank lines if an item or an indented line follows.
function endOfList(lines, i) {
  const fenceIn = (line) => FENCE.exec(line.trim());
  for (let fence = null; i < lines.length; ++i) {
    const line = lines[i];
    if (fence) {
      if (closes(line, fence)) fence = null;
    } else if (!line.trim()) {
      const next = lines.slice(i).find((later) => later.trim());
      if (next === undefined || !(ITEM.test(next) || /^\s{2,}/.test(next))) return i;
    } else if (/^\s/.test(line) || ITEM.test(line)) {
      const opened = fenceIn(ITEM.exec(line)?.[3] ?? line);
      if (opened) fence = opened[1];
    } else if (interrupts(line)) {
      return i;
    }
  }
  return i;
}

function renderBlock(lines, depth) {
  const first = lines[0];
  const fence = FENCE.exec(first);
  if (fence) return [renderCode(lines, fence)];
  const heading = HEADING.exec(first);
  // The page has h1 and h2.
  if (heading) return [element(`h${Math.min(6, heading[1].length + 2)}`, {}, ...renderInline(heading[2]))];
  if (RULE.test(first)) return [element("hr")];
  if (depth < MAX_DEPTH && ITEM.test(first)) return [renderList(lines, depth)];
  if (depth < MAX_DEPTH && /^ {0,3}>/.test(first)) {
    const inner = lines.map((line) => line.replace(/^ {0,3}> ?/, ""));
    return [element("blockquote", {}, ...renderBlocks(inner, depth + 1))];
  }
  if (lines.length > 1 && first.includes("|") && TABLE_RULE.test(lines[1])) return [renderTable(lines)];
  return [element("p", {}, ...renderInline(lines.join("\n")))];
}

const renderBlocks = (lines, depth) => splitBlocks(lines).flatMap((block) => renderBlock(block, depth));

function renderCode(lines, fence) {
  const closed = lines.length > 1 && closes(lines.at(-1), fence[1]);
  const code = element("code", {}, lines.slice(1, closed ? -1 : undefined).join("\n"));
  return element("pre", {tabindex: "0", role: "region", "aria-label": `Code ${fence[2]}`.trim()}, code);
}

function renderList(lines, depth) {
  const [, indent, marker] = ITEM.exec(lines[0]);
  const ordered = /\d/.test(marker);
  const list = element(ordered ? "ol" : "ul", ordered && parseInt(marker) !== 1 ? {start: parseInt(marker)} : {});
  let item = null;
  const flush = () => {
    if (!item) return;
    const nodes = renderBlocks(item, depth + 1);
    // A paragraph alone makes a list that is needlessly wide.
    const tight = nodes.length && nodes[0].nodeName === "P" ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes;
    list.append(element("li", {}, ...tight));
  };
  for (const line of lines) {
    const begins = ITEM.exec(line);
    if (begins && begins[1].length <= indent.length + 1) {
      flush();
      item = [begins[3]];
    } else {
      item.push(dedent(line, indent.length + marker.length + 1));
    }
  }
  flush();
  return list;
}

const dedent = (line, most) => line.slice(Math.min(most, line.length - line.trimStart().length));

function renderTable(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const row = (line, name) => element("tr", {}, ...cells(line).map((cell) => element(name, {}, ...renderInline(cell))));
  const table = element("table", {},
                        element("thead", {}, row(lines[0], "th")),
                        element("tbody", {}, ...lines.slice(2).map((line) => row(line, "td"))));
  return element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Table"}, table);
}

// Each alternative begins with a character of its own, and none looks further than the end of what it matches.
const INLINE = [
  {mark: /(`+)([^`](?:.|\n)*?)\1(?!`)/y, make: (m) => element("code", {}, m[2].trim() || m[2])},
  {mark: /\*\*(?=\S)([^*]+(?:\*[^*]+)*?)\*\*/y, make: (m) => element("strong", {}, ...renderInline(m[1]))},
  {mark: /__(?=\S)([^_]+?)__(?!\w)/y, word: true, make: (m) => element("strong", {}, ...renderInline(m[1]))},
  {mark: /\*(?=\S)([^*\n]+?)\*/y, make: (m) => element("em", {}, ...renderInline(m[1]))},
  {mark: /_(?=\S)([^_\n]+?)_(?!\w)/y, word: true, make: (m) => element("em", {}, ...renderInline(m[1]))},
  {mark: /~~(?=\S)([^~]+?)~~/y, make: (m) => element("del", {}, ...renderInline(m[1]))},
  {mark: /!?\[([^\][]*)\]\(<?([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\)/y, make: (m) => link(m[1], m[2])},
  {mark: /<(https?:\/\/[^\s<>]+)>/y, make: (m) => link(m[1], m[1])},
  {mark: /https?:\/\/[^\s<>()"'`]*[^\s<>()"'`.,;:!?]/y, word: true, make: (m) => link(m[0], m[0])},
  {mark: /\\([\\`*_{}[\]()#+\-.!|~<>])/y, make: (m) => document.createTextNode(m[1])},
  {mark: / {2,99}\n/y, make: () => element("br")},
];

function renderInline(text) {
  const nodes = [];
  let plain = "";
  for (let i = 0; i < text.length;) {
    const found = matchAt(text, i);
    if (!found) {
      plain += text[i++];
      continue;
    }
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
    nodes.push(found.node);
    i += found.size;
  }
  if (plain) nodes.push(document.createTextNode(plain));
  return nodes;
}

// An answer may have a megabyte without a line break; nobody marks up more than this.
const MAX_INLINE = 10000;

function matchAt(text, i) {
  if (!"`*_~![<h\\ ".includes(text[i])) return null;
  const rest = text.slice(i, i + MAX_INLINE);
  for (const {mark, word, make} of INLINE) {
    if (word && i > 0 && /\w/.test(text[i - 1])) continue;
    mark.lastIndex = 0;
    const match = mark.exec(rest);
    if (match) return {node: make(match), size: match[0].length};
  }
  return null;
}

function link(label, target) {
  const safe = /^(https?:|mailto:)/i.test(target);
  const words = label || target;
  if (!safe) return document.createTextNode(`${words} (${target})`);
  return element("a", {href: target, target: "_blank", rel: "noopener noreferrer"}, words);
}
