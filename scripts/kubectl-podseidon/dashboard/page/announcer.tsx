/** Announces refusals to a screen reader: many refusals in one sentence. */
import { useEffect, useState } from "preact/hooks";
import { readMs, repeat } from "./browser-clock.ts";
import { store } from "./store.ts";
import { countText } from "./words.ts";

const TELL_EVERY_MS = 10_000;

export function Announcer() {
  const [text, setText] = useState("");
  useEffect(() => {
    let toldMs = readMs();
    return repeat(TELL_EVERY_MS, () => {
      const news = store.refusals.value.filter(({ lastMs }) => lastMs >= toldMs);
      const [newest] = news;
      toldMs = readMs();
      if (newest === undefined) return;
      setText(`${countText(news.length, "new refusal")}, the last of ${newest.name} in ${newest.namespace}`);
    });
  }, []);
  return (
    <p class="hidden" role="status">
      {text}
    </p>
  );
}
