/** A reflector in virtual time over a scripted transport, with the events that it reports. */
import { onTestFinished } from "vitest";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent, ReflectorOptions } from "../../../shared/kube/informer/reflector-options.ts";
import { VirtualTime } from "../runtime/virtual-ports.ts";
import { page, type ScriptedStream, ScriptedTransport } from "./scripted-transport.ts";

export interface Thing {
  readonly name: string;
  readonly uid: string;
  readonly version: string;
  readonly color: string;
}

/** A raw object. Its UID tells objects of one name apart. */
export function raw(name: string, version: string, color = "red", uid = `${name}-uid`): unknown {
  return { metadata: { namespace: "ns", name, uid, resourceVersion: version }, color };
}

export function parseThing(value: unknown): Thing {
  const { metadata, color } = value as { metadata: Record<string, string>; color: string };
  if (color === "bad") throw new Error("a bad color");
  return { name: metadata.name ?? "", uid: metadata.uid ?? "", version: metadata.resourceVersion ?? "", color };
}

export const EXPIRED = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };

export class ReflectorHarness {
  readonly time = new VirtualTime();
  readonly process = this.time.process({ seed: 7 });
  readonly transport = new ScriptedTransport();
  readonly events: ReflectorEvent[] = [];
  readonly notices: string[] = [];
  readonly source: Reflector<Thing>;

  constructor(options: Partial<ReflectorOptions<Thing>> = {}) {
    this.source = new Reflector<Thing>({
      name: "things",
      transport: this.transport,
      ports: this.process,
      path: "/things",
      parse: parseThing,
      keyOf: (thing) => `ns/${thing.name}`,
      uidOf: (thing) => thing.uid,
      versionOf: (thing) => thing.version,
      onEvent: (event) => this.events.push(event),
      ...options,
    });
    const show = (thing: Thing | undefined): string => (thing ? `${thing.name}@${thing.version}` : "-");
    this.source.subscribe({
      changed: (before, after) => this.notices.push(`${show(before)} > ${show(after)}`),
      relisted: (position) => this.notices.push(`relisted ${position}`),
      confirmed: (sentMs) => this.notices.push(`confirmed ${sentMs}`),
    });
  }

  async start(...watches: (ScriptedStream | "reset")[]): Promise<void> {
    if (this.transport.lists.length === 0) this.transport.lists.push(page("10", [raw("a", "5"), raw("b", "6")]));
    this.transport.watches.push(...watches);
    this.source.start();
    await this.time.settle();
  }

  state(): string {
    const things = [...this.source.values()].map((thing) => `${thing.name}@${thing.version}`).sort();
    return `${this.source.position}: ${things.join(" ")}`;
  }

  /** Complete lists after the first one. */
  relists(): number {
    return this.events.filter(({ kind }) => kind === "listed").length - 1;
  }

  failures(): string[] {
    return this.events.flatMap((event) => (event.kind === "failed" ? [`${event.during} ${event.tag}`] : []));
  }
}

/** Stops when the test ends. */
export function reflectorHarness(options: Partial<ReflectorOptions<Thing>> = {}): ReflectorHarness {
  const made = new ReflectorHarness(options);
  onTestFinished(() => made.source.stop());
  return made;
}
