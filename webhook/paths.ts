import type { Call } from "./server.ts";

/** What a call's URL says. */
export interface Place extends Pick<Call, "cell" | "kind" | "timeout"> {}

const SUFFIXES: Readonly<Record<Call["kind"], string>> = {
  validate: "",
  mutate: "/mutate",
  gate: "/gate",
  gateAll: "/gate/all",
};
const KINDS: readonly Call["kind"][] = ["validate", "mutate", "gate", "gateAll"];
/** Names that are the same in a path, whoever encodes it. */
const PLAIN = /^[A-Za-z0-9._-]+$/;
/** The query that kube-apiserver sends, the whole of it, in characters that mean themselves. */
const TIMEOUT = /^timeout=([0-9a-z.]+)$/;

/**
 * The URLs that apiservers call, which are few and known from the start: found by one look-up where matching a route, and reading a
 * query, would be a twentieth of a review. What is written in any other way is the router's.
 */
export class Paths {
  readonly #places = new Map<string, Omit<Place, "timeout">>();

  constructor(pathPrefix: string, cells: ReadonlySet<string>) {
    for (const cell of cells) {
      if (!PLAIN.test(cell)) continue;
      for (const kind of KINDS) this.#places.set(`${pathPrefix}/${cell}${SUFFIXES[kind]}`, { cell, kind });
    }
  }

  /** Undefined: ask the router. */
  find(url: string): Place | undefined {
    const end = url.indexOf("?");
    const place = this.#places.get(end < 0 ? url : url.slice(0, end));
    if (place === undefined) return undefined;
    if (end < 0) return { ...place, timeout: undefined };
    const timeout = TIMEOUT.exec(url.slice(end + 1))?.[1];
    return timeout === undefined ? undefined : { ...place, timeout };
  }
}
