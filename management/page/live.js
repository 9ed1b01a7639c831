/**
 * Keeps what the page shows up to date: by one stream of server-sent events, or by polling where that fails.
 *
 * The stream is read with fetch and not with EventSource, which hides the status of a refusal and would have the browser
 * ask for a password.
 * @module
 */

import { HEADERS, get, url } from "./api.js";

/** @typedef {{path: () => string | null, take: (value: any) => void}} Source */

const RETRY_MS = 2_000;
const POLL_MS = 5_000;

export class Live {
  /** @param {(state: "live" | "polling" | "paused" | "lost", at: Date) => void} report */
  constructor(report) {
    this.report = report;
    /** @type {Source[]} */
    this.sources = [];
    /** 0 is the stream, -1 is paused, anything else the ms between two polls. */
    this.every = 0;
    this.abort = new AbortController();
  }

  /** Show these from now on. @param {Source[]} sources */
  follow(sources) {
    this.sources = sources;
    this.restart();
  }

  /** How often: see `every`. @param {number} every */
  pace(every) {
    this.every = every;
    this.restart();
  }

  stop() {
    this.abort.abort();
  }

  /** Ask for everything again at once, because a path has changed or something was done. */
  restart() {
    this.abort.abort();
    this.abort = new AbortController();
    this.run(this.abort.signal);
  }

  /** @param {AbortSignal} signal */
  async run(signal) {
    let failures = 0;
    while (!signal.aborted) {
      const shown = this.sources.map((source) => ({ path: source.path(), take: source.take })).filter((each) => each.path);
      try {
        if (this.every === 0 && failures < 2) {
          await this.stream(shown, signal);
        } else {
          await this.poll(shown, signal);
          if (this.every < 0) {
            this.report("paused", new Date());
            return;
          }
          this.report("polling", new Date());
          await sleep(this.every || POLL_MS, signal);
          continue;
        }
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof StreamEnd)) console.warn("warren: " + error.message);
      }
      failures += 1;
      if (signal.aborted) return;
      this.report("lost", new Date());
      await sleep(RETRY_MS, signal);
    }
  }

  async poll(shown, signal) {
    for (const { path, take } of shown) {
      let value;
      try {
        value = await get(path);
      } catch (error) {
        if (error.status === 0) throw error;
        value = { error: "refused", reason: error.message };
      }
      if (signal.aborted) return;
      take(value);
    }
  }

  async stream(shown, signal) {
    const query = shown.map(({ path }) => `get=${encodeURIComponent(path)}`).join("&");
    const answer = await fetch(url(`events?${query}`), { headers: HEADERS, signal, credentials: "same-origin" });
    if (answer.status === 401) {
      await get("whoami"); // tells the page that the login has ended
    }
    if (!answer.ok || !answer.body) throw new Error(`the stream of events was answered with ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new StreamEnd();
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop() ?? "";
      for (const block of blocks) {
        if (signal.aborted) return;
        const found = /^event: (\d+)\ndata: (.*)$/.exec(block);
        if (found) shown[Number(found[1])].take(JSON.parse(found[2]));
        else this.report("live", new Date());
      }
    }
  }
}

class StreamEnd extends Error {}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(undefined); }, { once: true });
  });
}
