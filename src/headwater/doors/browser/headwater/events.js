// What the others stand on: errors with a code, and events that are listened to.

/** What went wrong: `code` is stable, the message is for people. */
export class HeadwaterError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "HeadwaterError";
    this.code = code;
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

/** What a server has answered instead of what was asked for. */
export async function refusal(answer) {
  const problem = await answer.json().catch(() => ({}));
  return new HeadwaterError(problem.reason ?? problem.code ?? "internal_error", problem.message ?? `HTTP ${answer.status}`);
}
