/** Parses the plugin's stream into the store. The browser connects again by itself. */
import * as v from "valibot";
import { Detail, Hello, Update } from "../page-messages.ts";
import { readMs } from "./browser-clock.ts";
import type { Store } from "./store.ts";

export function connect(store: Store): void {
  const source = new EventSource("updates");
  source.addEventListener("hello", ({ data }) => store.greet(v.parse(Hello, JSON.parse(data)), readMs()));
  source.addEventListener("update", ({ data }) => store.apply(v.parse(Update, JSON.parse(data)), readMs()));
  source.addEventListener("error", () => {
    store.isConnected.value = false;
  });
}

/** Undefined when the protector or the plugin is gone. */
export async function readDetail(key: string): Promise<Detail | undefined> {
  const path = key.split("/").map(encodeURIComponent).join("/");
  try {
    const response = await fetch(`protector/${path}`);
    return response.ok ? v.parse(Detail, await response.json()) : undefined;
  } catch {
    return undefined;
  }
}
