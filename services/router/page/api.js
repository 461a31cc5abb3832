// Calls to the server that this page comes from. All paths are relative, so a proxy may serve it under a prefix.

let key = sessionStorage.getItem("moestro.key") || "";
export const apiKey = () => key;
export function setApiKey(value) {
  key = value;
  sessionStorage.setItem("moestro.key", value);
}

export class ApiError extends Error {}

// The server's own words, where it has some.
async function errorOf(response) {
  let message = "";
  try {
    const body = await response.json();
    message = body.error?.message ?? "";
  } catch {
    // Not the server's reply, but a proxy's.
  }
  if (response.status === 401) message += " Enter a key under Settings.";
  return new ApiError(message || `${response.status} ${response.statusText}`);
}

async function call(path, options = {}) {
  const headers = {...options.headers};
  if (key) headers.Authorization = `Bearer ${key}`;
  try {
    return await fetch(path, {...options, headers, cache: "no-store", credentials: "omit"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is it running?");
  }
}

export async function getJson(path) {
  const response = await call(path);
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

export async function getText(path) {
  const response = await call(path);
  if (!response.ok) throw await errorOf(response);
  return response.text();
}

// {ok, body}: what /health says also counts when it is no success.
export async function getHealth() {
  const response = await call("health");
  return {ok: response.ok, body: await response.json()};
}

// Yields the objects of a stream of events, until "[DONE]" or its end.
export async function* streamJson(path, body, signal) {
  const response = await call(path, {
    method: "POST",
    headers: {"Content-Type": "application/json"},
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await errorOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  while (true) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (pending + value).split("\n");
    pending = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;  // comments keep the connection alive
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const frame = JSON.parse(data);
      if (frame.error) throw new ApiError(frame.error.message);
      yield frame;
    }
  }
}
