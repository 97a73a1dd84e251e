import type { PodProtector } from "../../schema/podprotector.ts";
import { type ProtectorState, parseProtector } from "./protector-state.ts";

/** One version of a protector that this process received. Its state is parsed on first use. */
export class ProtectorVersion {
  readonly object: PodProtector;
  /** Monotonic time at which it arrived. */
  readonly receivedMs: number;
  /** Monotonic time at which the call that returned it was sent; undefined for a version from the watch. */
  readonly sentMs: number | undefined;
  #state: ProtectorState | undefined;

  constructor(object: PodProtector, receivedMs: number, sentMs?: number) {
    // `managedFields`, which no code reads here, would take most of the memory of 10,000 protectors.
    this.object = { ...object, metadata: { ...object.metadata, managedFields: undefined } };
    this.receivedMs = receivedMs;
    this.sentMs = sentMs;
  }

  get uid(): string {
    return this.object.metadata.uid;
  }

  get version(): string {
    return this.object.metadata.resourceVersion;
  }

  get key(): string {
    return `${this.object.metadata.namespace ?? ""}/${this.object.metadata.name}`;
  }

  get state(): ProtectorState {
    this.#state ??= parseProtector(this.object);
    return this.#state;
  }
}
