/**
 * `validate` decides; `mutate` binds an eviction to the pod's UID (design 6); `gate` adds the counted gate to a new pod whose
 * protector asks for it, `gateAll` to every one that is counted (design 10).
 */
export type CallKind = "validate" | "mutate" | "gate" | "gateAll";

/** What a call's URL says. */
export interface Place {
  readonly cell: string;
  readonly kind: CallKind;
  /** Value of the query parameter `timeout`. */
  readonly timeout: string | undefined;
}

const SUFFIXES: Readonly<Record<CallKind, string>> = {
  validate: "",
  mutate: "/mutate",
  gate: "/gate",
  gateAll: "/gate/all",
};
const KINDS: readonly CallKind[] = ["validate", "mutate", "gate", "gateAll"];
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
