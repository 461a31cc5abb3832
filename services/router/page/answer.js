// One answer while it comes: its texts, and how fast.

import {streamJson} from "./api.js";

const now = () => performance.now() / 1000;

export class Answer {
  constructor(onChange) {
    this.onChange = onChange;
    this.content = "";
    this.reasoning = "";
    this.calls = [];
    this.prefill = null;  // {done, total}
    this.finish = null;   // "stop", "length", "tool_calls", "stopped", "error"
    this.error = "";
    this.tokens = 0;
    this.path = "";
    this.activations = "";  // "fp8": prefill rounded inputs
    this.cached = 0;
  }

  // Runs to the end; never throws. `signal` stops it.
  async run(request, signal) {
    this.began = now();
    try {
      const body = {
        ...request,
        stream: true,
        stream_options: {include_usage: true, continuous_usage_stats: true},
        return_progress: true,
      };
      for await (const frame of streamJson("v1/chat/completions", body, signal)) {
        this.take(frame);
        this.onChange();
      }
      this.finish ??= "error";
      if (this.finish === "error") this.error = "The answer ended too early: the connection broke.";
    } catch (error) {
      this.finish = error.name === "AbortError" ? "stopped" : "error";
      if (this.finish === "error") this.error = error.message;
    }
    this.ended = now();
    this.onChange();
  }

  take(frame) {
    const progress = frame.prompt_progress;
    if (progress) this.prefill = {done: progress.processed, total: progress.total};
    if (frame.usage) {
      this.tokens = frame.usage.completion_tokens;
      this.cached = frame.usage.prompt_tokens_details?.cached_tokens ?? this.cached;
    }
    if (frame.timings) {
      this.path = frame.timings.path ?? "";
      this.activations = frame.timings.prefill_activations ?? "";
    }
    const choice = frame.choices?.[0];
    if (!choice) return;
    const {content, reasoning_content: reasoning, tool_calls: calls} = choice.delta;
    if (content || reasoning || calls) this.noteToken();
    this.content += content ?? "";
    this.reasoning += reasoning ?? "";
    for (const piece of calls ?? []) this.takeCall(piece);
    if (choice.finish_reason) this.finish = choice.finish_reason;
  }

  takeCall(piece) {
    const call = (this.calls[piece.index] ??= {id: "", name: "", arguments: ""});
    call.id = piece.id ?? call.id;
    call.name = piece.function?.name ?? call.name;
    call.arguments += piece.function?.arguments ?? "";
  }

  noteToken() {
    this.last = now();
    this.first ??= this.last;
    this.firstTokens ??= this.tokens || 1;
    this.prefill = null;
  }

  // Seconds from the click to the first token; undefined before it.
  ttft() {
    return this.first === undefined ? undefined : this.first - this.began;
  }

  // Tokens a second since the first one.
  rate() {
    const seconds = this.last - this.first;
    return seconds > 0 ? (this.tokens - this.firstTokens) / seconds : undefined;
  }

  figures() {
    const parts = [];
    if (this.ttft() !== undefined) parts.push(`first token ${this.ttft().toFixed(2)} s`);
    if (this.rate() !== undefined) parts.push(`${this.rate().toFixed(1)} tok/s`);
    if (this.tokens) parts.push(`${this.tokens} tokens`);
    if (this.cached) parts.push(`${this.cached} cached`);
    if (this.path) parts.push(`path ${this.path}`);
    if (this.activations === "fp8") parts.push("FP8 activations");
    return parts.join(" · ");
  }
}
