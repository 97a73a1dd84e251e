/** Watches the protectors of one core, and the Events about them, for the board. */
import { corePath, podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent, ReflectorOptions } from "../../../shared/kube/informer/reflector-options.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import type { ClusterClient } from "../invocation/cluster.ts";
import type { Board } from "./board.ts";
import type { WatchRow } from "./page-messages.ts";
import { EVENT_SELECTOR, type EventAtProtector, parseProtectorEvent } from "./refusals.ts";

/** A stream that is lost for a shorter time is not reported. */
const GRACE_MS = 3_000;

type Running = Pick<Reflector<unknown>, "start" | "stop">;

interface CollectorOptions {
  /** Index in the list of cores. */
  readonly core: number;
  readonly client: Pick<ClusterClient, "name" | "transport">;
  /** Undefined for all namespaces. */
  readonly namespace: string | undefined;
  readonly ports: Ports;
  readonly board: Board;
}

export class Collector {
  readonly #watches: readonly { readonly reflector: Running; state(): WatchRow }[];

  constructor({ core, client, namespace = "", ports, board }: CollectorOptions) {
    const { transport } = client;
    const protectors = new Watched<PodProtector>(core, "protectors", ports, {
      ...{ name: `protectors of ${client.name}`, transport, ports, path: podProtectorPath(namespace) },
      parse: parsePodProtector,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
      unparsable: "keepLast",
    });
    protectors.reflector.subscribe({ changed: (before, after) => board.changed(core, before, after) });
    const events = new Watched<EventAtProtector>(core, "Events", ports, {
      ...{ name: `Events of ${client.name}`, transport, ports, path: corePath("events", namespace) },
      query: { fieldSelector: EVENT_SELECTOR },
      parse: parseProtectorEvent,
      uidOf: ({ uid }) => uid,
      versionOf: ({ version }) => version,
    });
    let isListed = false;
    events.reflector.subscribe({
      changed: (before, after) => after !== undefined && board.event(core, before, after, isListed),
      relisted: () => {
        isListed = true;
      },
    });
    this.#watches = [protectors, events];
  }

  start(): void {
    for (const { reflector } of this.#watches) reflector.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#watches.map(({ reflector }) => reflector.stop()));
  }

  states(): readonly WatchRow[] {
    return this.#watches.map((watch) => watch.state());
  }
}

class Watched<T> {
  readonly reflector: Reflector<T>;
  readonly #core: number;
  readonly #what: WatchRow["what"];
  readonly #ports: Ports;
  #isFailing = false;
  #isForbidden = false;
  #why = "";
  /** When the present state began, by both clocks. */
  #sinceMs: number;
  #sinceMonotonicMs: number;

  constructor(core: number, what: WatchRow["what"], ports: Ports, options: ReflectorOptions<T>) {
    this.#core = core;
    this.#what = what;
    this.#ports = ports;
    this.#sinceMs = ports.clock.nowMs();
    this.#sinceMonotonicMs = ports.clock.monotonicMs();
    this.reflector = new Reflector<T>({ ...options, onEvent: (event) => this.#follow(event) });
  }

  state(): WatchRow {
    const { synced } = this.reflector;
    const isOld = this.#ports.clock.monotonicMs() - this.#sinceMonotonicMs >= GRACE_MS;
    // A user without permission to read protectors sees old ones. Without permission to read Events, one list of the
    // page stays empty.
    const isForbidden = this.#isFailing && this.#isForbidden && this.#what === "Events";
    const isStale = this.#isFailing && (isOld || !synced);
    const state = isForbidden ? "forbidden" : isStale ? "stale" : synced ? "live" : "starting";
    const isNamed = state === "stale" || state === "forbidden";
    return { core: this.#core, what: this.#what, state, sinceMs: this.#sinceMs, why: isNamed ? this.#why : "" };
  }

  #follow(event: ReflectorEvent): void {
    if (event.kind === "failed" && event.during !== "confirm") {
      this.#turn(true);
      this.#isForbidden = event.tag === "forbidden" || event.tag === "unauthorized";
      this.#why = event.error.message;
    } else if (event.kind === "listed" || event.kind === "watching") this.#turn(false);
  }

  #turn(isFailing: boolean): void {
    if (this.#isFailing === isFailing) return;
    this.#isFailing = isFailing;
    this.#sinceMs = this.#ports.clock.nowMs();
    this.#sinceMonotonicMs = this.#ports.clock.monotonicMs();
  }
}
