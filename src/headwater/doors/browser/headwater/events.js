// What the others stand on: errors with a code, and events that are listened to.

/** What went wrong: `code` is stable, the message is for people. What was refused over HTTP has its `status`, and where
 *  several documents were handed in, `document` is the id of the one that it is about. */
export class HeadwaterError extends Error {
  constructor(code, message, { status, document } = {}) {
    super(message);
    this.name = "HeadwaterError";
    this.code = code;
    this.status = status;
    this.document = document;
  }
}

// What the same request may not meet a moment later.
const PASSING = new Set(["overloaded", "rate_exceeded", "store_busy", "store_failed", "store_full"]);
const PAUSE_MS = 250;
const PAUSE_MAX_MS = 15_000;

/** Tries again what a server refuses only for the moment, after pauses that grow and differ from page to page. */
export class Patience {
  #tries = 0;
  #timer = null;

  /** Whether `again` will be called because of this error. */
  takes(error, again) {
    if (!PASSING.has(error.code)) return false;
    this.stop();
    this.#timer = setTimeout(again, (0.5 + Math.random() / 2) * Math.min(PAUSE_MAX_MS, PAUSE_MS * 2 ** this.#tries++));
    return true;
  }

  /** It is tried just now, or is wanted no more. */
  stop() {
    clearTimeout(this.#timer);
  }

  /** It has gone well. */
  reset() {
    this.#tries = 0;
  }
}

/** What has events. */
export class Emitter {
  #listeners = new Map();

  /** Call `listener` for each event of this name; returns what ends that. */
  on(name, listener) {
    if (!this.#listeners.has(name)) this.#listeners.set(name, new Set());
    this.#listeners.get(name).add(listener);
    return () => this.#listeners.get(name).delete(listener);
  }

  emit(name, value) {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        listener(value);
      } catch (error) {
        // The mistake of one listener is no reason to lose a message for the others.
        setTimeout(() => { throw error; });
      }
    }
  }
}

/** A name as one part of a path. Some would be another path: no escape keeps "." and ".." from meaning a folder. */
export function segment(name) {
  const text = String(name ?? "");
  if (["", ".", ".."].includes(text)) {
    throw new HeadwaterError("invalid_input", `"${text}" is no name of a collection, a document or a database`);
  }
  return encodeURIComponent(text);
}

/** What a server has answered instead of what was asked for. */
export async function refusal(answer) {
  const problem = await answer.json().catch(() => ({}));
  const { status } = answer;
  const message = problem.message ?? problem.detail ?? `HTTP ${status}`;
  return new HeadwaterError(problem.reason ?? problem.code ?? "internal_error", message, { status, document: problem.document });
}
