/** Announces refusals to a screen reader: many refusals in one sentence. */
import { useEffect, useState } from "preact/hooks";
import { repeat } from "./browser-clock.ts";
import { store } from "./store.ts";
import { countText } from "./words.ts";

const TELL_EVERY_MS = 10_000;

export function Announcer() {
  const [text, setText] = useState("");
  useEffect(
    () =>
      repeat(TELL_EVERY_MS, () => {
        const news = store.takeUnannounced();
        const [newest] = news;
        if (newest === undefined) return;
        setText(`${countText(news.length, "new refusal")}, the last of ${newest.name} in ${newest.namespace}`);
      }),
    [],
  );
  return (
    <p class="hidden" role="status">
      {text}
    </p>
  );
}
