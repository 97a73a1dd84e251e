/** What is wrong with a source is told once, and again when that has changed. Holds one text for each source that has a problem. */

import { apiVersionOf, type ProtectionSource, type SourceKind } from "../sources/protection-source.ts";
import type { GeneratorEvent, Problem } from "./events.ts";

export class Reports {
  readonly #told = new Map<string, string>();
  readonly #onEvent: (event: GeneratorEvent) => void;

  constructor(onEvent: (event: GeneratorEvent) => void) {
    this.#onEvent = onEvent;
  }

  /** `why` undefined: nothing is wrong with it. */
  tell(
    key: string,
    kind: Problem,
    sourceKind: SourceKind,
    source: ProtectionSource | undefined,
    why: string | undefined,
  ): void {
    if (source === undefined || why === undefined) {
      this.#told.delete(key);
      return;
    }
    const { namespace, name, uid } = source;
    const text = `${kind} ${uid} ${why}`;
    if (this.#told.get(key) === text) return;
    this.#told.set(key, text);
    const about = { apiVersion: apiVersionOf(sourceKind), kind: sourceKind.kind, namespace, name, uid };
    this.#onEvent({ kind, source: key, about, why });
  }
}
