import type { Transport } from "../kube/transport.ts";
import type { Ports } from "../runtime/clock.ts";

/** What an Event is about. */
export interface ObjectReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
}

export interface EventNote {
  readonly regarding: ObjectReference;
  readonly type: "Normal" | "Warning";
  /** CamelCase, one of few. */
  readonly reason: string;
  readonly message: string;
}

export interface EventRecorderOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  /** `source.component`. */
  readonly component: string;
  /** Namespace of Events about objects that have none. Default `default`. */
  readonly defaultNamespace?: string;
  readonly onOutcome?: (outcome: EventOutcome) => void;
}

export const EVENT_OUTCOMES = ["created", "counted", "limited", "dropped", "failed"] as const;
export type EventOutcome = (typeof EVENT_OUTCOMES)[number];

/** Kubernetes Events, aggregated and rate limited as client-go does; never blocks, never throws. */
export declare class EventRecorder {
  constructor(options: EventRecorderOptions);
  record(note: EventNote): void;
  /** Sends what is queued, for at most `limitMs`, and ends. */
  stop(limitMs: number): Promise<void>;
}
